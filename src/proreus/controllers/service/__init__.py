"""Make load balancers for Services."""
