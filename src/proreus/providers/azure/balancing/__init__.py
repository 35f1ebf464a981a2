"""Load balancers of Azure: one for public and one for internal Services of a cluster."""
