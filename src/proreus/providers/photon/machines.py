"""Convert Photon Controller's description of a virtual machine to Kubernetes' terms. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.instances import InstanceState
from proreus.kube.objects import NodeAddress
from proreus.providers.photon.documents import Connection, Networks

STARTED: Final = "STARTED"
STOPPED: Final = "STOPPED"
"""The state that was reached by the last operation that ended well, not what the host sees.

So it does not prove that a machine has no power: it stays where a start got no answer of the host
(`VmPowerOpStepCmd` of Photon Controller), and the machine may run.
"""
DELETED: Final = "DELETED"
"""The state of a machine that is gone, while Photon Controller still shows it."""
OUTSIDE: Final = ("00:50:56", "00:0c:29")
"""The prefix of MAC addresses of adapters that lead outside, as in the in-tree provider."""

_STATES: Final[Mapping[str, InstanceState]] = {
    "CREATING": InstanceState.RUNNING,
    STARTED: InstanceState.RUNNING,
    "SUSPENDED": InstanceState.STOPPED,
    STOPPED: InstanceState.STOPPED,
    DELETED: InstanceState.TERMINATING,
}


def state_of(state: str) -> InstanceState:
    """Return the state of a machine; ERROR and unknown words say nothing about it."""
    return _STATES.get(state, InstanceState.UNKNOWN)


def addresses(networks: Networks) -> tuple[NodeAddress, ...]:
    """Return the addresses of a machine, each once, in the order of the answer."""
    return tuple(dict.fromkeys(_addresses(networks.network_connections)))


def _addresses(connections: Sequence[Connection]) -> Iterator[NodeAddress]:
    for one in connections:
        address = one.ip_address or ""
        if is_address(address):
            is_outside = (one.mac_address or "").startswith(OUTSIDE)
            yield NodeAddress("ExternalIP" if is_outside else "InternalIP", address)


def in_order(
    found: tuple[NodeAddress, ...], before: Sequence[NodeAddress]
) -> tuple[NodeAddress, ...]:
    """Return the addresses in the order that they had before, new ones last.

    Photon Controller answers with a set, whose order differs from answer to answer.

    Args:
        found: The addresses of the machine.
        before: The addresses that its Node has, or that were found earlier.
    """
    kept = tuple(one for one in before if one in found)
    return (*kept, *(one for one in found if one not in kept))
