"""Shared code for clouds with Nova's servers: requests, servers, their names and states.

It is no provider: `openstack` and `rackspace` stand on it. It knows neither, and imports no SDK.
"""
