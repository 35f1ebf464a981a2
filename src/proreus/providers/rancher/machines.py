"""Convert Rancher's description of a host to Kubernetes' terms. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, InstanceState
from proreus.kube.objects import NodeAddress
from proreus.providers.rancher.names import provider_id

TYPE: Final = "rancher"
"""The instance type of all hosts."""
ZONE: Final = "FailureDomain1"
"""The zone of all hosts, as officially."""
REGION: Final = "Region1"
"""The region of all hosts, as officially."""

_STATES: Final[Mapping[str, InstanceState]] = {
    **dict.fromkeys(("removing", "removed", "purging", "purged"), InstanceState.TERMINATING),
    **dict.fromkeys(("error", "erroring", "provisioning"), InstanceState.UNKNOWN),
}
"""All others count as running: a host that is deactivated gets no new containers, and runs."""


def instance(host: Mapping[str, Any], *, known_as: str = "") -> Instance | CloudError:
    """Make the framework's `Instance` from the description of a host.

    Args:
        host: The host as Rancher describes it.
        known_as: The Node's provider id, "" if it has none; its letters may be capitals.
    """
    name = str(host.get("hostname") or "")
    found = tuple(addresses(host))
    if not found:
        # Officially such a host counts as gone, and its Node is deleted.
        return CloudError(f"the host {name} ({host.get('id', '')}) has no IP address yet")
    return Instance(
        provider_id=known_as or provider_id(str(host.get("uuid") or "")),
        name=name,
        instance_type=TYPE,
        zone=ZONE,
        region=REGION,
        addresses=(*found, *((NodeAddress("Hostname", name),) if name else ())),
        state=_state_of(host),
    )


def is_going(host: Mapping[str, Any]) -> bool:
    """Tell whether a host is being removed from Rancher."""
    return _state_of(host) is InstanceState.TERMINATING


def may_run(host: Mapping[str, Any]) -> bool:
    """Tell whether a host is in a state in which its machine may run.

    One that is provisioned may be there already: Docker Machine also adds machines that exist, with
    its driver `generic`.
    """
    return _state_of(host) is InstanceState.RUNNING or host.get("state") == "provisioning"


def _state_of(host: Mapping[str, Any]) -> InstanceState:
    return _STATES.get(str(host.get("state") or ""), InstanceState.RUNNING)


def addresses(host: Mapping[str, Any]) -> Iterator[NodeAddress]:
    """Return the addresses of a host in the official order: each is external and internal."""
    known = [str(one.get("address") or "") for one in joined(host) or ()]
    for ip in dict.fromkeys(known or [str(host.get("agentIpAddress") or "")]):
        if is_address(ip):
            yield NodeAddress("ExternalIP", ip)
            yield NodeAddress("InternalIP", ip)


def joined(host: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """Return a host's `ipAddresses` in an answer; None if they were not asked for."""
    for field, value in host.items():
        if field.lower() == "ipaddresses" and isinstance(value, list):
            return [one for one in value if isinstance(one, dict) and not one.get("removed")]
    return None


def merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each host once, with the addresses of all its rows."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = found.setdefault(str(row.get("id")), row)
        if known is not row:
            more = [*(joined(known) or ()), *(joined(row) or ())]
            rest = {key: known[key] for key in known if key.lower() != "ipaddresses"}
            found[str(row.get("id"))] = {**rest, "ipAddresses": more}
    return list(found.values())
