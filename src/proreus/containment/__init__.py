"""What stands between the controllers and a provider, so that no fault of it harms more."""
