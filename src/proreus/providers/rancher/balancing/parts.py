"""The values of a load balancer of Rancher: desired, and observed. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.ownership import Owner

Rule = tuple[int, int, str]
"""Where clients connect, where hosts listen, and the id of a host's external service."""

BALANCERS: Final = "loadbalancerservices"
EXTERNALS: Final = "externalservices"
REMOVING: Final = frozenset({"removing", "removed", "purging", "purged"})
"""States of what goes, or is gone."""


class Target(msgspec.Struct, frozen=True):
    """A node that gets traffic, by an external service of its own.

    Attributes:
        node: The name of the node.
        address: The address at which the node is reached.
    """

    node: str
    address: str


class Desired(msgspec.Struct, frozen=True):
    """The desired load balancer of a Service.

    Attributes:
        name: Its name.
        description: Its description, with our marks.
        ports: The ports that it publishes, as Rancher writes them.
        frontends: For each port, where clients connect and where hosts listen.
        targets: The nodes that get traffic.
        cluster_uid: The cluster whose marks their external services have.
        cluster: The name of the cluster.
    """

    name: str
    description: str
    ports: frozenset[str]
    frontends: tuple[tuple[int, int], ...]
    targets: tuple[Target, ...]
    cluster_uid: str
    cluster: str


class External(msgspec.Struct, frozen=True):
    """An external service: the address of a node, which load balancers share.

    Attributes:
        id: The id that Rancher gave it.
        name: Its name.
        addresses: The addresses that it leads to.
        state: Its state, in Rancher's words.
        owner: The cluster that its marks name, with the node in the place of the Service's uid.
    """

    id: str
    name: str
    addresses: tuple[str, ...]
    state: str
    owner: Owner | None = None


class Balancer(msgspec.Struct, frozen=True):
    """A load balancer service.

    Attributes:
        id: The id that Rancher gave it.
        stack: The id of its stack.
        state: Its state, in Rancher's words.
        ports: The ports that it publishes.
        rules: The rules that say which port leads where; none in v1.
        links: The ids of the services that it leads to.
        launch: The settings of its containers, as Rancher gives them.
        config: The settings of its balancing, as Rancher gives them.
        endpoints: The addresses and ports at which it is reached.
        is_marked: Whether our marks are on it.
        failure: Why Rancher's last work on it failed, or "".
    """

    id: str
    stack: str
    state: str
    ports: frozenset[str] = frozenset()
    rules: frozenset[Rule] = frozenset()
    links: frozenset[str] = frozenset()
    launch: Mapping[str, Any] = {}
    config: Mapping[str, Any] = {}
    endpoints: tuple[str, ...] = ()
    is_marked: bool = True
    failure: str = ""


class Observed(msgspec.Struct, frozen=True):
    """The observed load balancer of a Service, with what belongs to it.

    Attributes:
        stack: The id of the stack; "" if it does not exist.
        image: The image of new load balancers; "" where Rancher chooses it.
        balancer: The Service's load balancer.
        externals: All external services of the stack.
        unused: The ids of this cluster's external services that nobody needs.
        shared: The ids of external services without marks and with other addresses than those of
            their nodes, to which the Service's load balancer and others lead: they may be those of
            another cluster.
    """

    stack: str
    image: str = ""
    balancer: Balancer | None = None
    externals: tuple[External, ...] = ()
    unused: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
