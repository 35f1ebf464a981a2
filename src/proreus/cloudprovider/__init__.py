"""A provider author's whole world: the interface, its values, errors, config and plugins."""
