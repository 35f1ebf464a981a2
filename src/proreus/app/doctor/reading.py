"""Read the cluster and the cloud for the doctor, without a write.

What this user may not read is left out and listed. Access reviews are answers, not objects: the API
server keeps none of them.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from proreus.app import readonly
from proreus.app.clouds.config import named, rules_of
from proreus.app.clouds.looking import Look, looks
from proreus.app.clouds.plan import labels_of_all
from proreus.app.clouds.several import members_of
from proreus.app.cluster_identity import read_identity
from proreus.app.doctor import bare_metal, manager
from proreus.app.doctor.observed import (
    DAEMON_SETS,
    DEPLOYMENTS,
    PODS,
    Cloud,
    Held,
    Observed,
    Right,
    Speakers,
    Workload,
)
from proreus.app.doctor.options import DoctorOptions, as_stated
from proreus.app.doctor.reader import Reader
from proreus.app.doctor.rights import Need, needed_caches, needs
from proreus.app.leases import Lease, of_manager
from proreus.app.rights import ACCOUNT
from proreus.app.speaker.pods import SPEAKERS, is_speaker
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    ConfigError,
    HostPolicy,
    InstanceAnswer,
    LoadBalancers,
    NotSupported,
    Ownership,
)
from proreus.containment.inventory import Inventory
from proreus.controllers.cloud_node_lifecycle.alarms import HELD, UNKNOWN
from proreus.controllers.cloud_node_lifecycle.out_of_service import HELD as OUT_OF_SERVICE_HELD
from proreus.controllers.kubelet_serving.plan import NOT_APPROVED, SELECTOR
from proreus.controllers.persistent_volume_label.plan import askable
from proreus.controllers.service.intake import TYPE_LOAD_BALANCER, Classes
from proreus.controllers.table import select
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import KubeError
from proreus.kube.objects import Service, key
from proreus.kube.requests import (
    CERTIFICATE_SIGNING_REQUESTS,
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    EVENTS,
    JSON,
    LEASES,
    NODES,
    PERSISTENT_VOLUMES,
    SERVICES,
    Request,
)
from proreus.providers.local.config import LocalConfig

USER_AGENT: Final = "proreus-doctor"
LOCAL: Final = "local"
"""The provider for bare metal."""
EVENTS_OF_NODES: Final = "default"
RECENT: Final = 3600.0
"""Seconds for which an event counts."""
_OF_SYSTEM: Final = "system:serviceaccount:kube-system:"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class _Involved(msgspec.Struct, frozen=True):
    name: str = ""


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    involved_object: _Involved = _Involved()
    message: str = ""
    last_timestamp: datetime | None = None


async def observe(options: DoctorOptions, config: ClientConfig) -> Observed:
    """Read everything that the doctor judges.

    Raises:
        KubeError: The API server cannot be asked.
    """
    async with readonly.client(config, USER_AGENT) as client:
        reader = Reader(client)
        observed = await _cluster(reader, options)
        options = as_stated(options, manager.stated_flags(observed))
        observed = msgspec.structs.replace(
            observed,
            leases=await _leases(reader, options),
            lease_namespace=options.leader_elect_resource_namespace,
            elects=options.leader_elect,
            classes=Classes(frozenset(rules_of(options).classes), options.classless_load_balancers),
            allow_untagged=options.allow_untagged_cloud,
        )
        observed = await _for_controllers(reader, observed, options)
        if LOCAL in {one.provider for one in named(options.cloud_provider)}:
            observed = await _for_local(reader, observed)
        observed = await _rights(reader, observed, options, config)
        if options.cloud_provider:
            observed = msgspec.structs.replace(
                observed, cloud=await _cloud(client, observed, options)
            )
        else:
            note = "the cloud was not asked: give --cloud-provider and --cloud-config"
            observed = msgspec.structs.replace(observed, notes=(*observed.notes, note))
        return msgspec.structs.replace(observed, unread=tuple(reader.unread))


async def _cluster(reader: Reader, options: DoctorOptions) -> Observed:
    """Read nodes, Services and the manager's objects."""
    namespace = options.namespace
    nodes = await reader.items(NODES)
    services = await reader.items(SERVICES)
    slices = await reader.items(ENDPOINT_SLICES)
    pods = await reader.items(PODS, namespace)
    workloads: list[Workload] = []
    for resource in (DEPLOYMENTS, DAEMON_SETS):
        workloads += [
            msgspec.structs.replace(one, kind=resource.kind)
            for one in await reader.items(resource, namespace) or ()
            if manager.is_manager(one.metadata)
        ]
    manager_pods = tuple(pod for pod in pods or () if manager.is_manager(pod.metadata))
    notes: tuple[str, ...] = ()
    if pods is not None and not workloads and not manager_pods:
        note = (
            f"no pod, Deployment or DaemonSet in {namespace} has the name or labels of a "
            f"{manager.NAME}: its pods were not checked; is it in another --namespace?"
        )
        notes = (note,)
    return Observed(
        now=datetime.now(UTC),
        nodes=nodes or (),
        services=services or (),
        slices=slices,
        workloads=tuple(workloads),
        pods=manager_pods,
        held=await _recent_events(reader, HELD),
        unknown=await _recent_events(reader, UNKNOWN),
        in_service=await _recent_events(reader, OUT_OF_SERVICE_HELD),
        notes=notes,
        namespace=namespace,
        patience=options.patience,
    )


async def _for_controllers(reader: Reader, observed: Observed, options: DoctorOptions) -> Observed:
    """Read what only some controllers work on, where those are on: not every reader may list it."""
    chosen = {one.alias for one in select(options.controllers)[0]}
    if "pvlabel" in chosen:
        volumes = await reader.items(PERSISTENT_VOLUMES) or ()
        observed = msgspec.structs.replace(observed, volumes=volumes)
    if "kubelet-serving" in chosen:
        requests = await reader.items(CERTIFICATE_SIGNING_REQUESTS, field_selector=SELECTOR)
        observed = msgspec.structs.replace(
            observed,
            requests=requests or (),
            not_approved=await _recent_events(reader, NOT_APPROVED),
        )
    return observed


async def _for_local(reader: Reader, observed: Observed) -> Observed:
    """Read what may be in the way of load balancers on bare metal."""
    sets = await reader.items(DAEMON_SETS) or ()
    maps = await reader.items(
        CONFIG_MAPS, "kube-system", field_selector=f"metadata.name={bare_metal.KUBE_PROXY}"
    )
    pods = await reader.items(PODS, label_selector=SPEAKERS)
    own = tuple(one for one in sets if is_speaker(one.metadata.labels))
    return msgspec.structs.replace(
        observed,
        balancers=tuple(one for one in sets if bare_metal.balancer_of(one)),
        kube_proxy=maps[0].data if maps else None,
        speakers=None if pods is None else Speakers(own, pods),
    )


async def _recent_events(reader: Reader, reason: str) -> tuple[Held, ...]:
    now = datetime.now(UTC)
    items = await reader.items(EVENTS, EVENTS_OF_NODES, field_selector=f"reason={reason}")
    events = msgspec.convert(items or (), tuple[_Event, ...])
    return tuple(
        Held(event.involved_object.name, event.message, event.last_timestamp)
        for event in events
        if event.last_timestamp and (now - event.last_timestamp).total_seconds() < RECENT
    )


async def _leases(reader: Reader, options: DoctorOptions) -> tuple[Lease, ...] | None:
    """Read the manager's lease and those of single controllers, which begin with its name."""
    items = await reader.items(LEASES, options.leader_elect_resource_namespace)
    return None if items is None else of_manager(items, options.leader_elect_resource_name)


async def _rights(
    reader: Reader, observed: Observed, options: DoctorOptions, config: ClientConfig
) -> Observed:
    """Check whether the manager's service account has its rights."""
    user = manager.service_account(observed)
    if not user:
        note = "the manager's rights were not checked: its service account is not known"
        return msgspec.structs.replace(observed, notes=(*observed.notes, note))
    accounts = {ACCOUNT: user}
    needed = await needed_caches(options, reader.client)
    async with Client(config, user_agent=USER_AGENT) as reviewer:
        answers = await reader.optional(
            "the manager's rights",
            _gathered(
                [
                    _review(
                        reviewer, accounts.get(need.account, f"{_OF_SYSTEM}{need.account}"), need
                    )
                    for need in needs(options, needed)
                ]
            ),
        )
    return msgspec.structs.replace(observed, rights=None if answers is None else tuple(answers))


async def _gathered(work: Sequence[Coroutine[Any, Any, Right]]) -> list[Right]:
    """Return the answers; raise the first error once all calls have ended."""
    answers = await asyncio.gather(*work, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if isinstance(answer, Right)]


async def _review(client: Client, user: str, need: Need) -> Right:
    resource, _, subresource = need.resource.partition("/")
    _, _, namespace, _ = user.split(":")
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": [
                "system:authenticated",
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
            ],
            "resourceAttributes": {
                "group": need.group,
                "resource": resource,
                "subresource": subresource,
                "verb": need.verb,
                "namespace": need.namespace,
                "name": need.name,
            },
        },
    }
    request = Request("POST", _REVIEWS, body=msgspec.json.encode(body), content_type=JSON)
    answer = await client.send(request, _Review)
    return Right(
        user,
        need.group,
        need.resource,
        need.verb,
        need.namespace,
        need.name,
        answer.status.allowed,
    )


async def _cloud(client: Client, observed: Observed, options: DoctorOptions) -> Cloud:
    """Start the provider, and ask it about the nodes and Services."""
    name, local = options.cloud_provider, None
    try:
        provider = await readonly.configured(options, client)
        local = _local_config(provider)
        identity = await read_identity(client, options.cluster_name)
        listers = {
            **readonly.listers(observed.nodes, observed.services, observed.slices or ()),
            **await readonly.besides(client, provider.needs),
        }
        objects = (observed.nodes, observed.services)
        async with looks(provider, identity, listers, objects, options) as found:
            seen = [await _look_at(one, identity, observed, options) for one in found]
            return msgspec.structs.replace(_together(seen), local=local)
    except CloudError as exc:
        return Cloud(name, error=exc, local=local)
    except KubeError as exc:
        return Cloud(name, error=ConfigError((f"--cloud-config-secret: {exc}",)))


def _local_config(provider: CloudProvider) -> LocalConfig | None:
    """Return the cloud-config of the provider `local`, if it is one of the clouds."""
    configs = (one.config for one in members_of(provider).values())
    return next((one for one in configs if isinstance(one, LocalConfig)), None)


async def _look_at(
    look: Look, identity: ClusterIdentity, observed: Observed, options: DoctorOptions
) -> Cloud:
    """Ask one cloud about what belongs to it."""
    name, cloud = look.name or look.kind, look.cloud
    nodes = [node for node in look.nodes if options.node in ("", node.metadata.name)]
    balanced = [service for service in look.services if service.spec.type == TYPE_LOAD_BALANCER]
    if isinstance(cloud, CloudError):
        unknown = {node.metadata.name: Ownership.UNKNOWN for node in nodes}
        return Cloud(name, error=cloud, owns=unknown)
    instances, balancers = cloud.instances, cloud.load_balancers
    answers: dict[str, InstanceAnswer] = {}
    if instances is not None:
        inventory = Inventory(instances, on_error=lambda _error, _kind: None)
        began = asyncio.get_running_loop().time()
        described = await inventory.get(nodes, not_before=began)
        answers = {name: observation.answer for name, observation in described.items()}
    lacking = askable(observed.volumes)
    return Cloud(
        name,
        error=None if balancers is None else await _refusal(balancers, identity),
        has_cluster_id=cloud.has_cluster_id,
        answers=answers,
        owns={} if instances is None else {one.metadata.name: instances.owns(one) for one in nodes},
        policies={}
        if balancers is None
        else {key(one): _policy(balancers, one) for one in balanced},
        volumes={} if cloud.volumes is None or not lacking else await cloud.volumes.labels(lacking),
    )


def _together(clouds: Sequence[Cloud]) -> Cloud:
    """Return what all clouds say; they are its members if they are several."""
    if len(clouds) == 1:
        return clouds[0]
    return Cloud(
        ",".join(one.provider for one in clouds),
        answers={name: answer for one in clouds for name, answer in one.answers.items()},
        owns={name: ownership for one in clouds for name, ownership in one.owns.items()},
        policies={name: policy for one in clouds for name, policy in one.policies.items()},
        volumes=labels_of_all([one.volumes for one in clouds]),
        members=tuple(clouds),
    )


async def _refusal(balancers: LoadBalancers, identity: ClusterIdentity) -> CloudError | None:
    """Return why the load balancers cannot be listed: they need rights of their own."""
    try:
        await balancers.list_owned(identity)
    except NotSupported:
        return None
    except CloudError as exc:
        return exc
    return None


def _policy(balancers: LoadBalancers, service: Service) -> HostPolicy | CloudError:
    try:
        return balancers.host_policy(service)
    except CloudError as exc:
        return exc
