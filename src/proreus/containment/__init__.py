"""Stand between the controllers and a provider, so that its faults do no harm."""
