"""Load balancers of NSX-T: virtual servers on one load balancer service of the cluster."""
