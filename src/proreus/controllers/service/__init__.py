"""The controller that makes load balancers for Services."""
