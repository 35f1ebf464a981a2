"""Speaks to the emulator by Google's own SDKs for Python; run by `test_sdk.py` in a process.

`python sdk_client.py ENDPOINT PROJECT REGION ZONE` gets a token by workload identity federation
(google-auth), makes, changes and deletes load balancers (google-api-python-client), reads and
changes by google-cloud-compute, and prints what it was answered, as JSON.
"""

import json
import sys
from typing import Any

import google.auth
import google_auth_httplib2
import httplib2
from google.api_core import exceptions
from google.cloud import compute_v1
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError

SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class Classic:
    """The calls of google-api-python-client, each waited for."""

    def __init__(self, endpoint: str, credentials: Any, project: str, region: str) -> None:
        http = google_auth_httplib2.AuthorizedHttp(credentials, http=httplib2.Http(timeout=60))
        self.api = build(
            "compute", "v1", http=http, static_discovery=True,
            client_options={"api_endpoint": f"{endpoint}/compute/v1/"},
        )  # fmt: skip
        self.project, self.region = project, region

    def change(self, collection: str, verb: str, **arguments: Any) -> dict[str, Any]:
        """Make a change of a regional resource, or of a global one; wait for it."""
        scope: dict[str, Any] = {"project": self.project}
        if collection not in {"firewalls", "httpHealthChecks"}:
            scope["region"] = self.region
        call = getattr(getattr(self.api, collection)(), verb)(**scope, **arguments)
        begun = call.execute()
        waits = self.api.regionOperations() if "region" in scope else self.api.globalOperations()
        done: dict[str, Any] = waits.wait(**scope, operation=begun["name"]).execute()
        assert done["status"] == "DONE", done
        return done

    def refused(self, collection: str, verb: str, **arguments: Any) -> str:
        """Return the status and the reason with which a change is refused."""
        try:
            self.change(collection, verb, **arguments)
        except HttpError as error:
            reason = json.loads(error.content)["error"]["errors"][0]["reason"]
            return f"{error.resp.status} {reason}"
        return "done"

    def pools(self) -> dict[str, Any]:
        """Make an external load balancer with a target pool, of two protocols."""
        self.change("httpHealthChecks", "insert", body={"name": "hc", "port": 10256})
        check = f"projects/{self.project}/global/httpHealthChecks/hc"
        self.change("targetPools", "insert", body={"name": "pool", "healthChecks": [check]})
        target = f"projects/{self.project}/regions/{self.region}/targetPools/pool"
        rule = {"portRange": "53", "target": target, "IPProtocol": "TCP"}
        self.change("forwardingRules", "insert", body={**rule, "name": "tcp"})
        where = {"project": self.project, "region": self.region}
        rules = self.api.forwardingRules()
        address = rules.get(**where, forwardingRule="tcp").execute()["IPAddress"]
        second = {**rule, "name": "udp", "IPProtocol": "UDP", "IPAddress": address}
        said = {"unreserved": self.refused("forwardingRules", "insert", body=second)}
        self.change("addresses", "insert", body={"name": "held", "address": address})
        self.change("forwardingRules", "insert", body=second)
        said["in use"] = self.refused("targetPools", "delete", targetPool="pool")
        said["again"] = self.refused("targetPools", "insert", body={"name": "pool"})
        listed = rules.list(**where, maxResults=1)
        names, pages = [], 0
        while listed is not None:
            page = listed.execute()
            names += [one["name"] for one in page["items"]]
            pages += 1
            listed = rules.list_next(listed, page)
        said["rules"], said["pages"] = ",".join(sorted(names)), str(pages)
        for collection, key, name in (
            ("forwardingRules", "forwardingRule", "tcp"),
            ("forwardingRules", "forwardingRule", "udp"),
            ("addresses", "address", "held"),
            ("targetPools", "targetPool", "pool"),
            ("httpHealthChecks", "httpHealthCheck", "hc"),
        ):
            self.change(collection, "delete", **{key: name})
        return said

    def services(self) -> dict[str, Any]:
        """Make an external load balancer with a backend service and an address of IPv6."""
        check = {"name": "hc", "type": "HTTP", "httpHealthCheck": {"port": 10256}}
        self.change("regionHealthChecks", "insert", body=check)
        here = f"projects/{self.project}/regions/{self.region}"
        body = {
            "name": "service", "protocol": "UNSPECIFIED", "loadBalancingScheme": "EXTERNAL",
            "healthChecks": [f"{here}/healthChecks/hc"],
        }  # fmt: skip
        self.change("regionBackendServices", "insert", body=body)
        stale = {"backendService": "service", "body": {**body, "fingerprint": "c3RhbGU="}}
        said = {"stale": self.refused("regionBackendServices", "update", **stale)}
        rule = {
            "name": "v6", "ipVersion": "IPV6", "subnetwork": f"{here}/subnetworks/outside",
            "IPProtocol": "L3_DEFAULT", "allPorts": True, "loadBalancingScheme": "EXTERNAL",
            "backendService": f"{here}/backendServices/service",
        }  # fmt: skip
        inside = {**rule, "subnetwork": f"{here}/subnetworks/inside"}
        said["inside"] = self.refused("forwardingRules", "insert", body=inside)
        self.change("forwardingRules", "insert", body=rule)
        where = {"project": self.project, "region": self.region}
        made = self.api.forwardingRules().get(**where, forwardingRule="v6").execute()
        said["v6"] = made["IPAddress"]
        self.change("forwardingRules", "delete", forwardingRule="v6")
        self.change("regionBackendServices", "delete", backendService="service")
        self.change("regionHealthChecks", "delete", healthCheck="hc")
        return said


def newer(endpoint: str, credentials: Any, project: str, zone: str) -> dict[str, Any]:
    """Read and change by google-cloud-compute, which has typed messages."""
    options: dict[str, Any] = {
        "credentials": credentials,
        "client_options": {"api_endpoint": endpoint},
    }
    instances = compute_v1.InstancesClient(**options)
    found = instances.get(project=project, zone=zone, instance="node-1")
    request = compute_v1.AggregatedListInstancesRequest(project=project, max_results=1)
    every = [one.name for _, scope in instances.aggregated_list(request) for one in scope.instances]
    said = {"status": found.status, "instances": ",".join(sorted(every))}
    try:
        instances.get(project=project, zone=zone, instance="nobody")
    except exceptions.NotFound as error:
        said["missing"] = type(error).__name__
    firewalls = compute_v1.FirewallsClient(**options)
    allowed = compute_v1.Allowed(I_p_protocol="tcp", ports=["80"])
    rule = compute_v1.Firewall(
        name="fw", network=f"projects/{project}/global/networks/default", allowed=[allowed]
    )
    # Its futures ask Google's own host for their operations, so these are waited for here.
    operations = compute_v1.GlobalOperationsClient(**options)
    begun = firewalls.insert_unary(project=project, firewall_resource=rule)
    operations.wait(project=project, operation=begun.name)
    said["source"] = ",".join(firewalls.get(project=project, firewall="fw").source_ranges)
    begun = firewalls.delete_unary(project=project, firewall="fw")
    said["deleted"] = operations.wait(project=project, operation=begun.name).status.name
    return said


def endpoints(endpoint: str, credentials: Any, project: str, zone: str) -> dict[str, Any]:
    """Make a group of network endpoints, attach an instance twice, detach it, and delete all."""
    options: dict[str, Any] = {
        "credentials": credentials,
        "client_options": {"api_endpoint": endpoint},
    }
    groups = compute_v1.NetworkEndpointGroupsClient(**options)
    operations = compute_v1.ZoneOperationsClient(**options)
    where = {"project": project, "zone": zone}
    named = {**where, "network_endpoint_group": "neg"}
    one = compute_v1.NetworkEndpoint(instance="node-1")

    def done(begun: Any) -> str:
        return str(operations.wait(**where, operation=begun.name).status.name)

    body = compute_v1.NetworkEndpointGroup(name="neg", network_endpoint_type="GCE_VM_IP")
    done(groups.insert_unary(**where, network_endpoint_group_resource=body))
    attach = compute_v1.NetworkEndpointGroupsAttachEndpointsRequest(network_endpoints=[one])
    key = "network_endpoint_groups_attach_endpoints_request_resource"
    done(groups.attach_network_endpoints_unary(**named, **{key: attach}))
    said = {}
    try:
        groups.attach_network_endpoints_unary(**named, **{key: attach})
    except exceptions.BadRequest as error:
        said["attached again"] = type(error).__name__
    show = compute_v1.NetworkEndpointGroupsListEndpointsRequest(health_status="SKIP")
    listed = groups.list_network_endpoints(
        **named, network_endpoint_groups_list_endpoints_request_resource=show
    )
    said["endpoints"] = ",".join(each.network_endpoint.instance for each in listed)
    said["size"] = str(groups.get(**named).size)
    detach = compute_v1.NetworkEndpointGroupsDetachEndpointsRequest(network_endpoints=[one])
    key = "network_endpoint_groups_detach_endpoints_request_resource"
    said["detached"] = done(groups.detach_network_endpoints_unary(**named, **{key: detach}))
    done(groups.delete_unary(**named))
    return said


def main(endpoint: str, project: str, region: str, zone: str) -> dict[str, Any]:
    """Do all of it; return what was answered."""
    credentials, _ = google.auth.default(scopes=[SCOPE])
    classic = Classic(endpoint, credentials, project, region)
    return {
        "credentials": type(credentials).__name__,
        **classic.pools(),
        **classic.services(),
        **newer(endpoint, credentials, project, zone),
        **endpoints(endpoint, credentials, project, zone),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
