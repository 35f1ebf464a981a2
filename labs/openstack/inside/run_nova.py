# mypy: ignore-errors
# ruff: noqa: I001 - the first import changes what the others find
"""Nova's API, conductor, scheduler and compute service in one process: `run_nova.py STATE`.

Their messages stay in the process, so no broker is needed. Compute writes to the database itself,
as the cell's is the default one.
"""

import sys

import nova.cmd

import eventlet
import os_vif
from oslo_log import log as logging
from proreus_drivers import sqlite

import nova.conf
from nova import config, objects, service
from nova.compute import rpcapi as compute_rpcapi
from nova.conductor import rpcapi as conductor_rpcapi
from nova.scheduler import rpcapi as scheduler_rpcapi


def main():
    """Start all, and serve."""
    state = sys.argv[1]
    config.parse_args(["nova", "--config-file", f"{state}/nova.conf"])
    sqlite.locked_is_deadlock()
    logging.setup(nova.conf.CONF, "nova")
    objects.register_all()
    os_vif.initialize()
    started = []
    for binary, topic in (
        ("nova-conductor", conductor_rpcapi.RPC_TOPIC),
        ("nova-scheduler", scheduler_rpcapi.RPC_TOPIC),
        ("nova-compute", compute_rpcapi.RPC_TOPIC),
    ):
        started.append(service.Service.create(binary=binary, topic=topic))
        started[-1].start()
    api = service.WSGIService("osapi_compute")
    api.start()
    while True:
        eventlet.sleep(3600)


if __name__ == "__main__":
    main()
