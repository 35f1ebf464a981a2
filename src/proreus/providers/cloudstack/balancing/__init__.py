"""Load balancers of CloudStack: rules on a public address, and what lets clients reach them."""
