"""Know which clouds have started, and show each cloud's controllers what is theirs alone."""

import copy
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from proreus.app.clouds.plan import (
    LABEL_CLOUD,
    Belonging,
    Decided,
    Foreign,
    Misplaced,
    Placed,
    Rules,
    belonging,
    heard,
    is_let_go,
    place,
    recorded,
)
from proreus.cloudprovider import (
    CloudProvider,
    Instance,
    InstanceAnswer,
    Instances,
    Ownership,
    confirmed_by,
    scope_of,
)
from proreus.containment.holders import MachineHolders, MachineOf
from proreus.controllers.service.intake import UNDECIDED, cloud_in_status, has_finalizer
from proreus.kube.objects import Node, Service
from proreus.runtime.informer import Cache
from proreus.runtime.view import View

_MOVED_AWAY: Final = "ClusterIP"


class Clouds:
    """The clouds of one manager, and what belongs to each."""

    def __init__(self, names: Sequence[str], rules: Rules, machine_of: MachineOf = str) -> None:
        """Begin with clouds that have not started; `machine_of` knows the ids of all of them."""
        self._rules = rules
        self._recorded: dict[str, str] = {}
        self._started: dict[str, CloudProvider | None] = dict.fromkeys(names)
        self._holders = MachineHolders(machine_of)

    @property
    def started(self) -> Mapping[str, CloudProvider | None]:
        """The clouds by name, with the guarded provider of those that have started."""
        return self._started

    def start(self, name: str, provider: CloudProvider) -> None:
        """Note that a cloud has started, or has another provider now."""
        self._started[name] = provider
        lacking = {
            cloud
            for cloud, one in self._started.items()
            if one is not None and one.load_balancers is None
        }
        self._rules = msgspec.structs.replace(self._rules, lacking=lacking)

    def belonging(self, node: Node) -> Belonging:
        """Decide to which cloud a node belongs, without asking."""
        return belonging(node, {name: self._vote(name, node) for name in self._started})

    def place(self, service: Service) -> Placed | Misplaced | None:
        """Decide which cloud has a Service."""
        former = self._recorded.get(service.metadata.uid, "") or cloud_in_status(service)
        return place(service, self._rules, former)

    def unmistaken(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer:
        """Return the answer about a node, or a conflict if it shows another Node's machine."""
        return self._holders.unmistaken(node, answer)

    def of_member(
        self, name: str, provider: CloudProvider, *, undecided: Ownership
    ) -> CloudProvider:
        """Return a cloud's guarded provider, as its controllers are to see it.

        Args:
            name: The name of the cloud.
            provider: The cloud's provider.
            undecided: The error for nodes of which nobody knows to which cloud they belong.
        """
        of_member = copy.copy(provider)
        if provider.instances is not None:
            of_member.instances = MemberInstances(self, name, provider.instances, undecided)
        return of_member

    def _vote(self, name: str, node: Node) -> Ownership | None:
        provider = self._started[name]
        if provider is None:
            return None
        return Ownership.NO if provider.instances is None else provider.instances.owns(node)

    def node_of(self, name: str, node: Node) -> Node | None:
        """Return the node if it belongs to that cloud, or is `UNDECIDED`; else None."""
        found = self.belonging(node)
        owner = found.cloud if isinstance(found, Decided) else UNDECIDED
        return node if owner == name else None

    def service_of(self, name: str, service: Service) -> Service | None:
        """Return the Service as that cloud is to see it; None if it has nothing to do with it."""
        found = self.place(service)
        if found is None:
            return None
        if isinstance(found, Misplaced):
            return service if name == UNDECIDED else None
        if found.cloud != name:
            return None
        return _moving_away(service) if found.leaves else service


class Registry(Clouds):
    """The clouds of one manager, each with a view of the nodes and Services that are its own."""

    def __init__(
        self,
        names: Sequence[str],
        rules: Rules,
        nodes: Cache[Node],
        services: Cache[Service],
        machine_of: MachineOf = str,
    ) -> None:
        """Look at the nodes and Services, of which none belongs to a cloud yet."""
        super().__init__(names, rules, machine_of)
        nodes.subscribe(self._holders.on_node)
        services.subscribe(self._note)  # before the views, which depend on it
        every = (*names, UNDECIDED)
        self._nodes_of = {name: View(nodes, partial(self.node_of, name), "nodes") for name in every}
        self._services_of = {
            name: View(services, partial(self.service_of, name), "services") for name in every
        }

    def _note(self, old: Service | None, new: Service | None) -> None:
        """Remember by uid which cloud was last recorded on a Service, until it lets go of it.

        A manager records another cloud only once the finalizer of the one before is gone. What
        anybody else writes in between says nothing about where the load balancer is.
        """
        if new is not None and (cloud := recorded(new)):
            is_held = old is not None and has_finalizer(old)
            if not (is_held and self._rules.can_have(self._recorded.get(new.metadata.uid))):
                self._recorded[new.metadata.uid] = cloud
        elif (gone := new or old) is not None and (new is None or is_let_go(new)):
            self._recorded.pop(gone.metadata.uid, None)

    def nodes_of(self, name: str) -> View[Node]:
        """Return the nodes that belong to a cloud, or that nobody is responsible for."""
        return self._nodes_of[name]

    def services_of(self, name: str) -> View[Service]:
        """Return the Services that belong to a cloud, or that nobody is responsible for."""
        return self._services_of[name]

    def start(self, name: str, provider: CloudProvider) -> None:
        """Note that a cloud has started, or has another provider, and look at everything again."""
        super().start(name, provider)
        for nodes in self._nodes_of.values():
            nodes.recheck()
        for services in self._services_of.values():
            services.recheck()


def _moving_away(service: Service) -> Service:
    """Return the Service as one that wants no load balancer any more, as after a change of type."""
    spec = msgspec.structs.replace(service.spec, type=_MOVED_AWAY)
    return msgspec.structs.replace(service, spec=spec)


class OwnInstances:
    """The machines of a cloud: it says nothing of those that a label gives to another cloud."""

    def __init__(
        self, names: Sequence[str], cloud: Instances, others: Collection[str] = ()
    ) -> None:
        """Answer for the cloud `cloud`, with these names; `others` are the manager's other ones."""
        self._names = names
        self._others = others
        self._cloud = cloud

    @property
    def batch_size(self) -> int:
        """The provider's batch size."""
        return self._cloud.batch_size

    def owns(self, node: Node) -> Ownership:
        """Return the provider's answer."""
        return self._cloud.owns(node)

    def scope(self, node: Node) -> str | None:
        """Return the provider's scope."""
        return scope_of(self._cloud, node)

    async def confirmed(self, nodes: Sequence[Node]) -> Collection[str]:
        """Return which of the nodes the provider confirms."""
        return await confirmed_by(self._cloud, nodes)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Call the provider's `describe`."""
        asked = {node.metadata.name: node for node in nodes}
        answers = await self._cloud.describe(nodes)
        return {
            name: heard(asked[name], answer, self._names, self._others)
            for name, answer in answers.items()
        }


class MemberInstances(OwnInstances):
    """The machines of one cloud of several: it owns nothing that may be another's."""

    def __init__(self, registry: Clouds, name: str, cloud: Instances, undecided: Ownership) -> None:
        """Answer for the cloud `name`; `undecided` is said of nodes that nobody is known to own."""
        super().__init__((name,), cloud, others=registry.started.keys() - {name})
        self._registry = registry
        self._name = name
        self._undecided = undecided

    def owns(self, node: Node) -> Ownership:
        """Return the provider's answer about its own nodes; UNKNOWN if it is not sure."""
        found = self._registry.belonging(node)
        if isinstance(found, Foreign):
            return Ownership.NO
        if not isinstance(found, Decided):
            return self._undecided
        if found.cloud != self._name:
            return Ownership.NO
        return self._cloud.owns(node) if found.sure else Ownership.UNKNOWN

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Call the provider's `describe`; machines get the label that names the cloud."""
        answers = await super().describe(nodes)
        return {name: labelled(answer, self._name) for name, answer in answers.items()}


def alone(provider: CloudProvider, names: Sequence[str]) -> CloudProvider:
    """Return the guarded provider of the only cloud, as its controllers are to see it.

    Args:
        provider: The provider.
        names: The names of the provider in `--cloud-provider`.
    """
    seen = copy.copy(provider)
    if provider.instances is not None:
        seen.instances = OwnInstances(names, provider.instances)
    return seen


def labelled(answer: InstanceAnswer, cloud: str) -> InstanceAnswer:
    """Add the label of the cloud to a machine."""
    if not isinstance(answer, Instance):
        return answer
    labels = {**answer.additional_labels, LABEL_CLOUD: cloud}
    return msgspec.structs.replace(answer, additional_labels=labels)
