"""Several gateways of the provider `local` that all work: each has a share of the addresses."""
