"""Load balancers and routes of NSX-T, by its policy API, for the provider `vsphere`."""
