"""Speaks to the emulator by Azure's own SDK for Python; run by `test_sdk.py` in a process.

`python sdk_client.py URL CA SUBSCRIPTION GROUP TENANT CLIENT SECRET` makes, changes and deletes a
load balancer with its public address, and prints what it was answered, as JSON.
"""

import json
import sys
from typing import Any

from azure.core.exceptions import HttpResponseError
from azure.identity import ClientSecretCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.resourcegraph import ResourceGraphClient
from azure.mgmt.resourcegraph.models import QueryRequest, QueryRequestOptions

MACHINE = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"


def main(*arguments: str) -> dict[str, Any]:
    """Make, change and delete; return what was answered."""
    url, ca, subscription, group, tenant, client, secret = arguments
    credential = ClientSecretCredential(
        tenant, client, secret, authority=url, disable_instance_discovery=True,
        connection_verify=ca,
    )  # fmt: skip
    options: dict[str, Any] = {
        "base_url": url,
        "credential_scopes": [f"{url}//.default"],
        "connection_verify": ca,
        "polling_interval": 0,
    }
    network = NetworkManagementClient(credential, subscription, **options)
    compute = ComputeManagementClient(credential, subscription, **options)
    said: dict[str, Any] = {}
    address = network.public_ip_addresses.begin_create_or_update(
        group, "sdk",
        {
            "location": "westeurope", "sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static"},
        },
    ).result()  # fmt: skip
    said["address"] = address.ip_address
    head = f"/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network"
    balancer = f"{head}/loadBalancers/sdk"
    body = {
        "location": "westeurope", "sku": {"name": "Standard"},
        "properties": {
            "frontendIPConfigurations": [
                {"name": "f", "properties": {"publicIPAddress": {"id": address.id}}}
            ],
            "backendAddressPools": [{"name": "p"}],
            "probes": [{"name": "h", "properties": {
                "protocol": "Tcp", "port": 80, "intervalInSeconds": 5, "numberOfProbes": 2}}],
            "loadBalancingRules": [{"name": "r", "properties": {
                "protocol": "Tcp", "frontendPort": 80, "backendPort": 80,
                "frontendIPConfiguration": {"id": f"{balancer}/frontendIPConfigurations/f"},
                "backendAddressPool": {"id": f"{balancer}/backendAddressPools/p"},
                "probe": {"id": f"{balancer}/probes/h"}}}],
        },
    }  # fmt: skip
    made = network.load_balancers.begin_create_or_update(group, "sdk", body).result()
    said["state"] = made.provisioning_state
    said["rules"] = [one.name for one in made.load_balancing_rules]
    said["listed"] = sorted(one.name for one in network.load_balancers.list(group))
    for field, wrong in (("frontendPort", 0), ("protocol", "Sctp")):
        bad = json.loads(json.dumps(body))
        bad["properties"]["loadBalancingRules"][0]["properties"] = {
            **bad["properties"]["loadBalancingRules"][0]["properties"], field: wrong,
            "idleTimeoutInMinutes": 1,
        }  # fmt: skip
        said[field] = _refused(
            lambda: network.load_balancers.begin_create_or_update(group, "sdk", bad).result()  # noqa: B023
        )
    said["in use"] = _refused(
        lambda: network.public_ip_addresses.begin_delete(group, "sdk").result()
    )
    network.load_balancers.begin_delete(group, "sdk").result()
    network.public_ip_addresses.begin_delete(group, "sdk").result()
    said["gone"] = _refused(lambda: network.load_balancers.get(group, "sdk"))
    said["machines"] = sorted(one.name for one in compute.virtual_machines.list(group))
    said["states"] = sorted(
        status.code
        for one in compute.virtual_machine_scale_set_vms.list(group, "pool", expand="instanceView")
        for status in one.instance_view.statuses
    )
    graph = ResourceGraphClient(credential, **options)
    query = f"ComputeResources | where type =~ '{MACHINE}' | project id, name | order by id asc"
    said["rows"], said["queried"], token = [], [], None
    while True:
        asked = QueryRequestOptions(top=2, skip_token=token, result_format="objectArray")
        page = graph.resources(
            QueryRequest(subscriptions=[subscription], query=query, options=asked)
        )
        token = page.skip_token
        said["rows"] += [row["name"] for row in page.data]
        said["queried"].append([page.count, page.total_records, "true" if token else ""])
        if not token:
            break
    bad_query = QueryRequest(subscriptions=[subscription], query="ComputeResources | nonsense")
    said["language"] = _refused(lambda: graph.resources(bad_query))
    return said


def _refused(call: Any) -> str:
    try:
        call()
    except HttpResponseError as error:
        return str(error.error.code if error.error else error.status_code)
    return "taken"


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
