"""A real OpenStack on this machine: keystone, placement, Nova, Neutron and Octavia.

    python -m labs.openstack up      # or: make openstack-up
    python -m labs.openstack down

The services are Debian's packages, unpacked into a directory of their own: nothing is installed,
and root is not needed. They keep their data in SQLite and listen on loopback. Nova's machines are
those of its fake driver; a driver of ours lets Neutron bind every port, and another lets Octavia
report every load balancer as working. There is no traffic.

It takes 100 MB to download, 1 GB on disk, and about 1 GB of memory. Debian 12 only, since the
packages are for its Python.
"""

from labs.openstack.cloud import Cloud, OpenStackError, running

__all__ = ["Cloud", "OpenStackError", "running"]
