"""Mimic, Rackspace's own mock of its APIs, and a layer with what it lacks."""
