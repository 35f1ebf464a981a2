"""What oVirt's own SDK for Python makes of an engine; a program of its own.

    echo DOCUMENT | sdk.py rewrite                                  a document, read and written
    sdk.py list URL USER PASSWORD SEARCH                            machines, as JSON
    sdk.py refused URL USER PASSWORD                                what a wrong request is told

The SDK is in C in part, so it is not in the environment of the tests (see `programs.py`).
"""

import json
import sys
from typing import Any

import ovirtsdk4 as sdk
from ovirtsdk4 import types
from ovirtsdk4.reader import Reader
from ovirtsdk4.writer import Writer


def rewrite() -> str:
    """Read machines, and write them again."""
    found = Reader.read(sys.stdin.buffer.read())
    written: str = Writer.write(found, root="vms")
    return written


def listed(connection: sdk.Connection, search: str) -> list[dict[str, Any]]:
    system = connection.system_service()
    clusters = {one.id: one for one in system.clusters_service().list()}
    centers = {one.id: one.name for one in system.data_centers_service().list()}
    kinds = {one.id: one.name for one in system.instance_types_service().list()}
    machines = system.vms_service().list(search=search, max=100, follow="nics,reported_devices")
    return [
        {
            "id": vm.id,
            "name": vm.name,
            "fqdn": vm.fqdn,
            "status": vm.status.value,
            "is_up": vm.status == types.VmStatus.UP,
            "cluster": clusters[vm.cluster.id].name,
            "data_center": centers[clusters[vm.cluster.id].data_center.id],
            "instance_type": kinds[vm.instance_type.id] if vm.instance_type else "",
            "macs": [nic.mac.address for nic in vm.nics],
            "ips": [ip.address for one in vm.reported_devices for ip in one.ips],
        }
        for vm in machines
    ]


def refused(connection: sdk.Connection) -> list[str]:
    """What the SDK says of a machine that is not there, and of a link that is none."""
    service = connection.system_service().vms_service()
    absent = service.vm_service("2e8c1f0a-0000-4000-8000-000000000000")
    told = []
    for ask, arguments in ((absent.get, {}), (service.list, {"follow": "nothing"})):
        try:
            ask(**arguments)
        except sdk.Error as error:
            told.append(f"{type(error).__name__}: {error}")
    return told


def main() -> None:
    verb, *arguments = sys.argv[1:]
    if verb == "rewrite":
        print(rewrite())
        return
    url, username, password, *rest = arguments
    connection = sdk.Connection(url=url, username=username, password=password, timeout=30)
    try:
        print(json.dumps(listed(connection, *rest) if verb == "list" else refused(connection)))
    finally:
        connection.close()


main()
