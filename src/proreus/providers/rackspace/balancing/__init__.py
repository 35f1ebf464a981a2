"""Load balancers of Rackspace: a Cloud Load Balancer for each port, on one shared address."""
