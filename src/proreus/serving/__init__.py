"""What the process serves by HTTP: to whom, with which certificates, and which pages."""
