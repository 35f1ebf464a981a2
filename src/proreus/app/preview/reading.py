"""Read the cluster and the cloud, and let the controllers' plans decide, without a write."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from proreus.app import readonly
from proreus.app.clouds.looking import Look, looks
from proreus.app.cluster_identity import read_identity
from proreus.app.leader import settings_of
from proreus.app.options import Options
from proreus.app.preview import certificates, routes, services, volumes
from proreus.app.preview.changes import Change, Preview
from proreus.app.preview.nodes import Drafts
from proreus.app.preview.services import Due, Previewed
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    ConfigError,
    InstanceAnswer,
    Instances,
    LoadBalancers,
    NotSupported,
    OwnedObject,
    Ownership,
    scope_of,
)
from proreus.cloudprovider.lookups import ownership
from proreus.containment.batches import Observation, outage
from proreus.containment.guarded import GuardedLoadBalancers
from proreus.containment.inventory import Inventory, Sighting
from proreus.controllers.cloud_node_lifecycle.controller import known, policy_of
from proreus.controllers.cloud_node_lifecycle.memory import Memory
from proreus.controllers.cloud_node_lifecycle.questions import Known, Reply, questions
from proreus.controllers.kubelet_serving import observation
from proreus.controllers.kubelet_serving.plan import SELECTOR
from proreus.controllers.networks import cluster_cidrs
from proreus.controllers.node_ipam.cidrset import Blocks
from proreus.controllers.node_ipam.plan import Mode, ranges
from proreus.controllers.persistent_volume_label.plan import askable
from proreus.controllers.service.hosts import candidates
from proreus.controllers.service.intake import UNDECIDED, classes_of
from proreus.controllers.settings import Settings
from proreus.controllers.table import Descriptor, select
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.objects import CertificateSigningRequest, EndpointSlice, Node, Service
from proreus.kube.requests import (
    CERTIFICATE_SIGNING_REQUESTS,
    ENDPOINT_SLICES,
    NODES,
    PERSISTENT_VOLUMES,
    SERVICES,
)

USER_AGENT: Final = "proreus-plan"


class _World(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that were read, and the cloud to ask about them; `routed` as in `Look`."""

    cloud: CloudProvider
    routed: CloudProvider
    cluster: ClusterIdentity
    settings: Settings
    controllers: frozenset[str]
    nodes: tuple[Node, ...]
    others: tuple[Node, ...]
    services: tuple[Service, ...]
    slices: tuple[EndpointSlice, ...]
    requests: tuple[CertificateSigningRequest, ...]
    now: datetime

    def owns(self, node: Node) -> Ownership:
        """Ask the provider whether a node's machine is this cloud's, as the controllers do."""
        return ownership(self.cloud.instances, node)


async def observe(options: Options, config: ClientConfig) -> Preview:
    """Read everything, and return what the manager would do.

    Raises:
        KubeError: The API server cannot be asked.
        CloudError: The cloud cannot be asked.
    """
    async with readonly.client(config, USER_AGENT) as client:
        provider = await readonly.configured(options, client)
        cluster = await read_identity(client, options.cluster_name)
        nodes = (await client.list(NODES)).items
        all_services = (await client.list(SERVICES)).items
        is_needed = "endpoint_slices" in provider.needs
        slices = (await client.list(ENDPOINT_SLICES)).items if is_needed else ()
        listers = {
            **readonly.listers(nodes, all_services, slices),
            **await readonly.besides(client, provider.needs),
        }
        async with looks(provider, cluster, listers, (nodes, all_services), options) as found:
            read = _Read(options, client, cluster, slices, {})
            each = [await _look_at(look, read) for look in found]
            return Preview(
                tuple(change for one in each for change in one.changes),
                tuple(dict.fromkeys(text for one in each for text in one.held)),
                tuple(dict.fromkeys(text for one in each for text in one.notes)),
                tuple(text for one in each for text in one.unread),
            )


class _Read(msgspec.Struct, frozen=True):
    """The objects that are the same for all clouds; `drafted` are the future nodes, by name."""

    options: Options
    client: Client
    cluster: ClusterIdentity
    slices: tuple[EndpointSlice, ...]
    drafted: dict[str, Node]


async def _look_at(look: Look, read: _Read) -> Preview:
    """Return what the manager would do for one cloud.

    Raises:
        KubeError: The API server cannot be asked.
        CloudError: The only cloud cannot be asked.
    """
    cloud, routed, options = look.cloud, look.routed, read.options
    if isinstance(cloud, CloudError) or isinstance(routed, CloudError):
        return Preview((), unread=(f"it could not be started: {cloud}",)).of(look.name)
    try:
        if not cloud.has_cluster_id and not options.allow_untagged_cloud:
            problem = "the cloud has no cluster id; set one, or use --allow-untagged-cloud"
            raise ConfigError((problem,))
        settings = settings_of(options)
        chosen, notes = _chosen(look, options, settings, cloud)
        requests: tuple[CertificateSigningRequest, ...] = ()
        if "kubelet-serving" in chosen:
            listed = await read.client.list(CERTIFICATE_SIGNING_REQUESTS, field_selector=SELECTOR)
            requests = listed.items
        world = _World(
            cloud=cloud,
            routed=routed,
            cluster=read.cluster,
            settings=settings,
            controllers=chosen,
            nodes=look.nodes,
            others=tuple(read.drafted.get(node.metadata.name, node) for node in look.others),
            services=look.services,
            slices=read.slices,
            requests=requests,
            now=datetime.now(UTC),
        )
        drafts = Drafts(world.nodes, world.now, world.others)
        found = await _preview(world, drafts)
        labels, held = await _volumes(world, read.client)
    except CloudError as exc:
        if not look.name:
            raise
        return Preview((), unread=(f"it could not be asked: {exc}",)).of(look.name)
    read.drafted.update(drafts.nodes)
    return msgspec.structs.replace(
        found,
        changes=(*found.changes, *labels),
        held=(*found.held, *held),
        notes=(*notes, *found.notes),
    ).of(look.name)


def _chosen(
    look: Look, options: Options, settings: Settings, cloud: CloudProvider
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the aliases of the controllers that would run, and why others would not."""
    chosen, notes = set(), []
    for one in select(options.controllers)[0]:
        if look.name == UNDECIDED and not (one.undecided or one.shared(settings)):
            continue
        if reason := _why_not(one, settings, cloud):
            notes.append(f"{one.name} would not run: {reason}")
        else:
            chosen.add(one.alias)
    return frozenset(chosen), tuple(notes)


def _why_not(descriptor: Descriptor, settings: Settings, cloud: CloudProvider) -> str:
    if descriptor.needed(settings) and getattr(cloud, descriptor.capability) is None:
        return f"the cloud has no {descriptor.capability}"
    return descriptor.why_not(settings)


async def _preview(world: _World, drafts: Drafts) -> Preview:
    instances = world.cloud.instances
    if instances is not None and world.controllers & {"cloud-node", "cloud-node-lifecycle"}:
        await _machines(world, drafts, instances)
    if "nodeipam" in world.controllers:
        await _pod_cidrs(world, drafts)
    found: list[Change] = []
    if "route" in world.controllers:
        found += await _routes(world, drafts)
    notes: list[str] = []
    balancers = world.cloud.load_balancers
    if balancers is not None and "service" in world.controllers:
        changes, notes = await _services(world, drafts, balancers)
        found += changes
    held = [*drafts.stuck, *drafts.held]
    if world.requests and world.routed.instances is not None:
        approvals = await _certificates(world, world.routed.instances)
        held += [one for one in approvals if isinstance(one, str)]
        found += [one for one in approvals if not isinstance(one, str)]
    return Preview((*drafts.changes, *found), tuple(held), tuple(notes))


async def _machines(world: _World, drafts: Drafts, instances: Instances) -> None:
    """Ask about every node once; both controllers of nodes decide from the answers."""
    began = asyncio.get_running_loop().time()
    inventory = Inventory(instances, on_error=lambda _error, _kind: None)
    asked = [node for node in world.nodes if instances.owns(node) is not Ownership.NO]
    seen = await inventory.get(asked, not_before=began)
    error = outage(seen)
    if error is not None:
        raise error
    answers = {name: one.answer for name, one in seen.items()}
    if "cloud-node" in world.controllers:
        drafts.initialise(answers, instances.owns)
    if "cloud-node-lifecycle" in world.controllers:
        await _deletions(world, drafts, instances, inventory, answers)


async def _deletions(
    world: _World,
    drafts: Drafts,
    instances: Instances,
    inventory: Inventory,
    answers: Mapping[str, InstanceAnswer],
) -> None:
    """Ask with witnesses in the same call, as the lifecycle controller does."""
    # There is no time to see whether a Ready node that the cloud does not know is dying.
    policy = msgspec.structs.replace(policy_of(world.settings), dying=0.0)
    asked = questions(
        world.nodes,
        world.now,
        known(instances, inventory),
        policy,
        Memory(),
        batch_size=inventory.batch_size,
        turn=0,
        at=0.0,
    )
    replies = []
    for one in asked:
        observed = await inventory.ask_with_witnesses(
            one.candidates, one.witnesses, one.due, one.due_off
        )
        replies.append(
            Reply(one, {name: _at_zero(observations) for name, observations in observed.items()})
        )
    knowledge = Known(
        owns=instances.owns,
        scope=lambda node: scope_of(instances, node),
        sighting=lambda node: _sighted(inventory.sighting(node)),
    )
    drafts.remove(replies, policy, knowledge, returning=answers)


def _at_zero(observations: Sequence[Observation]) -> Sequence[Observation]:
    """Move the observations to a clock whose time is now 0."""
    return [
        msgspec.structs.replace(observation, began=0.0, ended=0.0) for observation in observations
    ]


def _sighted(seen: Sighting) -> Sighting:
    """Move a sighting to a clock whose time is now 0: its answers count as just given."""
    return Sighting(*(None if time is None else 0.0 for time in (seen.shown, seen.missing)))


async def _certificates(world: _World, instances: Instances) -> list[Change | str]:
    began = asyncio.get_running_loop().time()
    inventory = Inventory(instances, on_error=lambda _error, _kind: None)
    nodes = readonly.Listed((*world.nodes, *world.others))
    seen = await observation.observe(world.requests, nodes, instances, inventory, not_before=began)
    return list(certificates.changes(world.requests, seen, world.now))


async def _pod_cidrs(world: _World, drafts: Drafts) -> None:
    settings = world.settings
    mode = Mode(settings.cidr_allocator_type)
    found, _ = ranges(
        mode,
        settings.cluster_cidr,
        size=settings.node_cidr_mask_size,
        size_v4=settings.node_cidr_mask_size_ipv4,
        size_v6=settings.node_cidr_mask_size_ipv6,
    )
    in_cloud: Mapping[str, tuple[str, ...]] | None = None
    if mode.asks_cloud and world.cloud.pod_cidrs is not None:
        asked = [node for node in drafts.nodes.values() if node.spec.provider_id]
        in_cloud = await world.cloud.pod_cidrs.describe(asked) if asked else {}
    taken, _ = cluster_cidrs(settings.service_cluster_ip_range)
    drafts.allocate(mode, Blocks(found, taken), in_cloud, world.owns)


async def _routes(world: _World, drafts: Drafts) -> Sequence[Change]:
    if world.cloud.routes is None:
        return ()
    clusters, _ = cluster_cidrs(world.settings.cluster_cidr)
    listed = await world.cloud.routes.list(world.cluster, (*world.nodes, *world.others))
    owns = partial(ownership, world.routed.instances)
    return routes.changes(drafts, listed, clusters, owns, world.now)


async def _volumes(world: _World, client: Client) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """List volumes where they are to be labelled, and ask about those that lack something."""
    if "pvlabel" not in world.controllers or world.cloud.volumes is None:
        return (), ()
    found = (await client.list(PERSISTENT_VOLUMES)).items
    asked = askable(found)
    answers = await world.cloud.volumes.labels(asked) if asked else {}
    return volumes.changes(found, answers)


async def _services(
    world: _World, drafts: Drafts, balancers: LoadBalancers
) -> tuple[list[Change], list[str]]:
    owned: Sequence[OwnedObject] | None
    try:
        owned = await balancers.list_owned(world.cluster)
    except NotSupported:
        owned = None
    settings = world.settings
    classes = classes_of(settings)
    due = services.due(
        world.services,
        tuple(candidates(drafts.everything, world.owns)),
        world.slices,
        cloud=balancers,
        owned=owned,
        cluster=world.cluster,
        classes=classes,
    )
    previews = await _previews(balancers, due)
    changes = list(services.changes(due, previews, owned, world.now))
    return changes, list(services.unforeseen(due, previews))


async def _previews(balancers: LoadBalancers, due: Sequence[Due]) -> Mapping[str, Previewed]:
    """Return what the provider would change, if it can tell."""
    desired = [one.desired for one in due if one.desired is not None]
    if not desired or not isinstance(balancers, GuardedLoadBalancers):
        return {}
    try:
        return await balancers.preview(desired)
    except NotSupported:
        return {}
