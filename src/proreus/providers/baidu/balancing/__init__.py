"""Load balancers of Baidu AI Cloud: BLB, and EIPs bound to them."""
