"""Keep what others have in the security group, such as a cluster with nodes in the same subnet.

Rules have no marks: one stands for all Services of all clusters with the same protocol, sources and
ports. So whose an address in them is must be known before it is closed, or taken from the others.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.instances import Instance
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import KubeObject, Node
from proreus.providers.azure.api import Arm
from proreus.providers.azure.balancing.additional import merged, named_before, opened_for, opening
from proreus.providers.azure.balancing.annotations import ANNOTATION_ADDITIONAL
from proreus.providers.azure.balancing.guard import destinations
from proreus.providers.azure.balancing.identities import KEPT, namesakes
from proreus.providers.azure.balancing.index import index
from proreus.providers.azure.balancing.parts import Job, Opening, Scene, State
from proreus.providers.azure.balancing.steps import PutGroup, Step
from proreus.providers.azure.balancing.work import Change
from proreus.providers.azure.instances import BATCH, AzureInstances

Take = Callable[[State, Step], Awaitable[Change]]
"""A function that takes a step, and returns how that changes what was observed."""

_Pair = tuple[str, str]

_REMEDY: Final = (
    "the security group lets clients in to it for somebody else, such as another cluster with nodes"
    " in the same subnet: leave it out, or list it in tenants of the cloud-config"
)


class Neighbours:
    """A memory of what is this cluster's in the security group."""

    def __init__(self, arm: Arm) -> None:
        """Keep the client of Azure."""
        self._arm = arm
        self._instances = AzureInstances(arm)
        self._confirmed: dict[_Pair, float] = {}
        self._opened: dict[str, Opening] = {}

    async def confirmed(self, state: State, scene: Scene) -> Scene:
        """Return the facts with those addresses of nodes in rules that are surely the nodes'.

        A kubelet can claim any address for its Node, and any machine: so Azure must show the
        address at the machine, and the machine must have the Node's name and be where most are
        (`namesakes`). Azure is only asked about addresses in rules, and about each again once the
        answer is older than `KEPT`.
        """
        now = self._arm.context.uptime()
        known = {one: at for one, at in self._confirmed.items() if now - at < KEPT}
        named = destinations(state.group)
        pairs: dict[_Pair, str] = {}
        unknown: dict[str, Node] = {}
        beside = namesakes(scene)
        for node in self._nodes():
            if node.metadata.name in beside:
                continue
            for address in {one.address for one in node.status.addresses} & named:
                pair = node.spec.provider_id, address
                pairs[pair] = address
                if pair not in known:
                    unknown[node.metadata.name] = node
        known |= dict.fromkeys(await self._asked(tuple(unknown.values())), now)
        self._confirmed = {one: at for one, at in known.items() if one in pairs}
        own = frozenset(pairs[one] for one in self._confirmed)
        return msgspec.structs.replace(scene, own_addresses=own, opened=dict(self._opened))

    def check(self, jobs: Sequence[Job], state: State, scene: Scene) -> None:
        """Refuse additional addresses to which rules let clients in for others than this cluster.

        What the status shows as that of the load balancer is none that the Service has: others may
        have got it meanwhile.

        Raises:
            InvalidRequest: Such an address is new to its Service; names annotation and remedy.
        """
        open_ = destinations(state.group) - index(state).addresses
        for job in jobs:
            asked = job.options.additional if job.lb is not None else ()
            before = named_before(job.ref, job.lb.families if job.lb is not None else ())
            for address in open_.intersection(asked) - self._had(job, before):
                is_listed = scene.place.config.tenants.lists(job.ref.namespace, (address,))
                if not is_listed and not self._has_users(job, address, scene):
                    raise InvalidRequest(
                        f"annotation {ANNOTATION_ADDITIONAL}: {address}: {_REMEDY}"
                    )

    def noting(self, jobs: Sequence[Job], take: Take) -> Take:
        """Return `take`, which notes what Services get open just before it opens that.

        What they only ask for is not theirs: they may be refused, also by Azure, and others get it
        meanwhile.
        """

        async def noted(state: State, step: Step) -> Change:
            if not isinstance(step.call, PutGroup):
                return await take(state, step)
            before = dict(self._opened)
            self.note(jobs)
            try:
                return await take(state, step)
            except Refused as error:
                # A failed operation, which has no status, may have opened it all the same.
                if 0 < error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    self._opened = before
                raise

        return noted

    def note(self, jobs: Iterable[Job]) -> None:
        """Note what Services that stay have open, or are about to: from now on it is theirs."""
        for job in jobs:
            if job.lb is None:
                continue
            before = self._opened.get(job.ref.uid, Opening())
            self._opened[job.ref.uid] = merged((before, opening(job)))

    def done(self, jobs: Iterable[Job]) -> None:
        """Note what Services have open that are as desired.

        An additional address that one names no more is none of its own when it names it again.
        """
        self.note(jobs)
        for job in jobs:
            if (one := self._opened.get(job.ref.uid)) is not None:
                additional = frozenset(job.options.additional)
                self._opened[job.ref.uid] = msgspec.structs.replace(one, additional=additional)

    def leaving(self, job: Job) -> Job:
        """Return a Service that goes, without additional addresses that it never had."""
        shown = {point.ip for point in job.ref.last_ingress}
        left = tuple(one for one in job.options.additional if one in self._had(job, shown))
        options = msgspec.structs.replace(job.options, additional=left)
        return msgspec.structs.replace(job, options=options)

    def forget(self, jobs: Iterable[Job]) -> None:
        """Forget what Services had open that are gone."""
        for job in jobs:
            self._opened.pop(job.ref.uid, None)

    def _had(self, job: Job, shown: set[str]) -> set[str]:
        """Return the addresses that a Service has by its status, or by what was done here."""
        named = self._opened.get(job.ref.uid, Opening()).additional
        return shown | named.intersection(job.options.additional)

    def _has_users(self, job: Job, address: str, scene: Scene) -> bool:
        """Tell whether other Services of the cluster have an address, whose rules these may be.

        Their status shows it beside their own, or it was opened for them a moment ago. What a
        Service only asks for says nothing: a tenant could have two that vouch for one another.
        """
        opened = opened_for(address, self._opened)
        return any(
            claim.base != job.ref.name and (claim.is_beside or claim.base in opened)
            for claim in scene.claims.get(address, ())
        )

    def _nodes(self) -> Iterator[Node]:
        listers = self._arm.context.listers
        every: Iterable[KubeObject] = listers["nodes"].all() if "nodes" in listers else ()
        return (one for one in every if isinstance(one, Node) and one.spec.provider_id)

    async def _asked(self, nodes: Sequence[Node]) -> set[_Pair]:
        """Ask Azure which addresses nodes have; what is not answered is not confirmed."""
        found: set[_Pair] = set()
        for start in range(0, len(nodes), BATCH):
            part = nodes[start : start + BATCH]
            answers = await attempt(self._instances.describe, part)
            if isinstance(answers, CloudError):
                continue
            for node in part:
                one = answers[node.metadata.name]
                if isinstance(one, Instance) and one.name == node.metadata.name.lower():
                    found |= {(node.spec.provider_id, each.address) for each in one.addresses}
        return found
