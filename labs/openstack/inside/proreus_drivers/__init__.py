"""Drivers for Neutron and Octavia that say that everything works."""
