"""Define the values of plans: jobs, settings and observed state."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.providers.azure.balancing.addresses import Known
from proreus.providers.azure.balancing.annotations import Options
from proreus.providers.azure.balancing.desired import Place
from proreus.providers.azure.machines import Resource

Document = dict[str, Any]


class Job(msgspec.Struct, frozen=True):
    """A Service of a pass: its desired load balancer, or None if it is to be deleted.

    Attributes:
        ref: The Service.
        lb: The desired load balancer.
        options: The options of its annotations.
        balancer: The name of the load balancer that it is placed on (`placement.placed`).
        space: The labels of its namespace, where load balancers are chosen by them.
        left: The addresses that its status has shown, and that it has left (`sharing.left_by`).
    """

    ref: LoadBalancerRef
    lb: LoadBalancer | None = None
    options: Options = Options()
    balancer: str = ""
    space: Mapping[str, str] = {}
    left: frozenset[str] = frozenset()

    @property
    def before(self) -> set[str]:
        """The addresses that the Service has had last, by its status."""
        return {point.ip for point in self.ref.last_ingress} | self.left


class Claim(msgspec.Struct, frozen=True):
    """What a Service of the cluster has at an address.

    Attributes:
        base: The beginning of the names of the Service's parts.
        namespace: The Service's namespace.
        ports: The ports at which the security group lets clients in, by Azure's word for the
            protocol.
        asked: The ports of its spec, which clients come to, by the same.
        is_shown: Whether the Service has the address by its spec or status; else an annotation asks
            for it.
        denies: Whether the Service asks that others than its clients are denied.
        is_opened: Whether its status shows the address, which so was opened for it; its spec and
            annotations can name a node's.
        is_inside: Whether it is one of the Service's cluster IPs.
        is_beside: Whether the status shows it beside those of the Service's load balancer.
    """

    base: str
    namespace: str
    ports: Mapping[str, frozenset[int]] = {}
    asked: Mapping[str, frozenset[int]] = {}
    is_shown: bool = True
    denies: bool = False
    is_opened: bool = False
    is_inside: bool = False
    is_beside: bool = False


class Had(msgspec.Struct, frozen=True):
    """What a Service had when it was ensured last.

    Attributes:
        addresses: The addresses of its frontends.
        ports: The ports that clients come to, each with Azure's word for its protocol.
    """

    addresses: frozenset[str] = frozenset()
    ports: frozenset[tuple[str, int]] = frozenset()


class Opening(msgspec.Struct, frozen=True):
    """What a Service has or had open in the security group, at whichever address.

    Attributes:
        ports: The ports, by Azure's word for the protocol.
        denies: Whether it denied others than its clients.
        additional: The additional addresses that it named.
    """

    ports: Mapping[str, frozenset[int]] = {}
    denies: bool = False
    additional: frozenset[str] = frozenset()


class Scene(msgspec.Struct, frozen=True):
    """The facts about the cluster that stay the same within a pass.

    Attributes:
        place: Where the load balancers are.
        services: The namespaces of the cluster's Services, by the default names of their load
            balancers.
        nodes: The cluster's nodes by the ids of their machines.
        excluded: The names of desired nodes that cannot be hosts.
        node_addresses: The names of nodes by their addresses, as the Nodes claim them.
        own_addresses: The addresses among these that Azure confirms, of those in the security
            group.
        pods: The names of nodes by their pod CIDRs.
        labels: The labels of nodes by their names, where there are several load balancers of a
            kind.
        has_links: Whether any Service of the cluster asks for a private link service.
        node_ports: Node ports of the cluster's Services that are not in the pass, by Azure's word
            for the protocol.
        claims: What Services of the cluster have at addresses, by address; those that are deleted
            in the pass have nothing any more.
        is_reached_inside: Whether the status of an internal Service shows a private address.
        denies_at_nodes: Whether a Service that is not in the pass asks that others than its clients
            are denied at nodes' addresses.
        namesakes: Services of the pass, by the beginnings of the names of their parts, that are
            gone while there is another one of the same namespace and name.
        had: What Services had when they were ensured last, by the beginnings of the names of their
            parts; of others nobody knows.
        opened: What Services of the pass have had open since the manager started, and whether they
            denied all else, by their UIDs.
        homes: The configuration whose load balancers each node is behind, where there are several
            load balancers of a kind; only within a plan.
    """

    place: Place
    services: Mapping[str, str] = {}
    nodes: Mapping[str, str] = {}
    excluded: frozenset[str] = frozenset()
    node_addresses: Mapping[str, str] = {}
    labels: Mapping[str, Mapping[str, str]] = {}
    has_links: bool = False
    node_ports: Mapping[str, frozenset[int]] = {}
    claims: Mapping[str, Sequence[Claim]] = {}
    is_reached_inside: bool = False
    denies_at_nodes: bool = False
    namesakes: frozenset[str] = frozenset()
    had: Mapping[str, Had] = {}
    homes: Mapping[str, str] | None = None
    own_addresses: frozenset[str] = frozenset()
    opened: Mapping[str, Opening] = {}
    pods: Mapping[str, str] = {}


class State(msgspec.Struct, frozen=True):
    """The observed state in Azure.

    Attributes:
        balancers: Load balancers by their names; None for one that does not exist.
        addresses: Public addresses.
        group: The security group.
        members: The ids of machines by the id of the pool that their interfaces are in.
        interfaces: The primary interfaces by the ids of their machines, without those of scale sets
            of the mode Uniform.
        sets: Scale sets of the mode Uniform by their ids.
        refused: The reason why a machine cannot be in a pool, by the machine's id.
        strangers: The reason why a Node's machine may be another one, by the Node's name: it comes
            into no pool and leaves none.
        vm_sets: The scale sets or availability sets of machines by the machines' ids, in small
            letters, where there are several load balancers of a kind; without machines whose id
            names the set.
        links: Private link services.
        elsewhere: Addresses that Services show or have left, and that are something else's, or may
            be: of public IPs of other resource groups, or of the network.
        taken: Private addresses among these that something in the network surely has.
    """

    balancers: Mapping[str, Resource | None] = {}
    addresses: Known = {}
    group: Resource | None = None
    members: Mapping[str, frozenset[str]] = {}
    interfaces: Mapping[str, Resource] = {}
    sets: Mapping[str, Resource] = {}
    refused: Mapping[str, str] = {}
    strangers: Mapping[str, str] = {}
    vm_sets: Mapping[str, str] = {}
    links: Known = {}
    elsewhere: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()

    def having(self, **fields: Any) -> "State":
        """Return the state with other values in these fields."""
        return msgspec.structs.replace(self, **fields)
