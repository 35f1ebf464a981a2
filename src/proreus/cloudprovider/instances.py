"""The capability `Instances`: what a cloud knows about the machines behind Nodes.

`Instances` stands for Go's Instances, InstancesV2 and Zones together: zone and region are
fields of `Instance`, and one `describe` answers for a whole batch.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.kube.objects import Node, NodeAddress


class Ownership(Enum):
    """Whether a Node's machine belongs to this cloud, region and account, as far as the Node shows.

    Few provider ids name an account. An answer of the wrong one is told by Ready nodes whose
    machines it lacks.
    """

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class InstanceState(Enum):
    """The state of a machine. Only `STOPPED` sets the shutdown taint."""

    RUNNING = "running"
    STOPPED = "stopped"
    TERMINATING = "terminating"
    UNKNOWN = "unknown"


class Instance(msgspec.Struct, frozen=True):
    """A machine as its cloud describes it. An empty string: the cloud does not know the field.

    `provider_id` has the form `<provider>://<provider-specific>`; `addresses` are in the order
    of preference; `additional_labels` must not use the domains kubernetes.io and k8s.io.

    `self_reported` is True where the addresses are not the cloud's word but repeat what the Node
    says of itself: no serving certificate is approved by them.

    `powered_off` is True only where the cloud itself says that the machine, which is STOPPED, has
    no power, and that nothing is about to change that: nothing of it writes to a volume any more.
    With `--node-out-of-service-taint` its volumes are then given to other nodes without asking it
    (KEP-2268). So it is False for machines that are suspended, paused, hibernated or still
    stopping, whose memory goes on later, and for whatever was found out by asking the machine.
    """

    provider_id: str
    name: str = ""
    instance_type: str = ""
    zone: str = ""
    region: str = ""
    addresses: tuple[NodeAddress, ...] = ()
    additional_labels: Mapping[str, str] = {}
    state: InstanceState = InstanceState.RUNNING
    self_reported: bool = False
    powered_off: bool = False


class NotFound(msgspec.Struct, frozen=True):
    """The answer that the cloud has no such machine.

    `tombstone` is True only where the answer shows that very id as terminated.
    """

    tombstone: bool = False


InstanceAnswer = Instance | NotFound | CloudError


def names_machine(provider_id: str) -> bool:
    """Tell whether a provider id names any machine, not only a scheme and slashes.

    A Node without a provider id is looked up by its name. A Node with the provider id `cloud://` is
    not: it names no machine, so no answer about it proves anything. Pure.
    """
    return bool(provider_id.rpartition("://")[2].strip(" /"))


class Instances(Protocol):
    """The capability of a cloud to describe its machines."""

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""

    def owns(self, node: Node) -> Ownership:
        """Tell whether the Node's machine is of this cloud, region and account. No I/O."""

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look the nodes up by provider id, or by name while they have none.

        A provider id that is not of this cloud's form is an `InvalidRequest`, and never a reason
        to look for the name. The framework does not pass on one that names no machine at all.

        Args:
            nodes: At most `batch_size` nodes.

        Returns:
            An answer by node *name*. A name left out means unknown, never absence.

        Raises:
            CloudError: The whole batch failed; the framework retries it, in halves where one
                bad id could be the reason.
        """


class Scopes(Protocol):
    """An addition to `Instances`, for clouds that look nodes up in more than one place.

    A scope is what is right or wrong as a whole: one credential, one endpoint, one listing. A
    machine that a vCenter, subscription, project or region shows proves that its own answers are
    whole, and nothing about another one. So witnesses, the breaker and everything else about the
    deletion of Nodes hold for each scope by itself. Without this all nodes are of one scope.
    """

    def scope(self, node: Node) -> str:
        """Return the scope in which a Node is looked up, as logs may name it. No I/O.

        Raises:
            CloudError: The scope cannot be determined. Such a Node is never deleted, and is no
                witness.
        """


class Confirms(Protocol):
    """An addition to `Instances`, for clouds with a cheap source that lags, such as an inventory.

    All nodes are compared with their machines every few minutes, and next to none has changed. Of
    nodes that are Ready, and whose machines `describe` has shown within the hour, this source may
    say that nothing has. It never says that something has: then `describe` is asked, as it is for
    all that decides about taints, deletions, certificates and new nodes.
    """

    async def confirmed(self, nodes: Sequence[Node]) -> Collection[str]:
        """Return the names of the nodes whose machines the source shows just as the Nodes do.

        The Node's addresses, zone, region and instance type agree, and the machine runs.

        Args:
            nodes: At most `batch_size` nodes.

        Raises:
            CloudError: The source gives no usable answer; then `describe` is asked about all.
        """


async def confirmed_by(instances: Instances, nodes: Sequence[Node]) -> Collection[str]:
    """Return the names of the nodes that the provider confirms; none if it cannot confirm any.

    Raises:
        CloudError: Its source gives no usable answer.
    """
    function = getattr(instances, "confirmed", None)
    found: Collection[str] = () if function is None or not nodes else await function(nodes)
    return found


def scope_of(instances: Instances, node: Node) -> str | None:
    """Return a node's scope by the provider; "" if there is only one, None if it is unknown."""
    function = getattr(instances, "scope", None)
    return "" if function is None else function(node)
