"""Serve HTTP from this process: to whom, with which certificates, and which pages."""
