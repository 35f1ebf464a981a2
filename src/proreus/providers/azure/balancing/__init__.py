"""Load balancers of Azure: for public and for internal Services of a cluster, shared by all."""
