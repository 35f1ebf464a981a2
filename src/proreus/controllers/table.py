"""List all controllers: names, what they need of the cloud, and their rights.

Canonical names and aliases are those of Go's CCM; both select a controller in `--controllers`.
"""

import difflib
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from proreus.controllers.cloud_node.controller import CloudNodeController
from proreus.controllers.cloud_node_lifecycle.controller import CloudNodeLifecycleController
from proreus.controllers.environment import Environment, Runnable
from proreus.controllers.node_ipam.controller import NodeIpamController
from proreus.controllers.node_ipam.plan import Mode
from proreus.controllers.node_lifecycle.controller import NodeLifecycleController
from proreus.controllers.persistent_volume_label.controller import (
    PersistentVolumeLabelController,
)
from proreus.controllers.route.controller import RouteController
from proreus.controllers.service.controller import ServiceController
from proreus.controllers.settings import Settings


class Rule(msgspec.Struct, frozen=True):
    """One RBAC rule: the verbs allowed on a resource of an API group; only on `names` if any."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


def _in_every_case(settings: Settings) -> bool:  # noqa: ARG001 - the settings have no say
    return True


def _never(settings: Settings) -> bool:  # noqa: ARG001 - the settings have no say
    return False


def _always(settings: Settings) -> str:  # noqa: ARG001 - the settings have no say
    return ""


class Sees(Enum):
    """The nodes that a controller sees where there are several clouds, each with its own."""

    OWN = "own"
    """The nodes that belong to the controller's cloud."""
    HOSTS = "hosts"
    """All nodes; a node that may belong to any cloud counts as its cloud's own: it stays a host."""
    ALL = "all"
    """All nodes; a node that may belong to any cloud does not count as its cloud's own."""


class Descriptor(msgspec.Struct, frozen=True):
    """A controller; it needs the provider's `capability` if `needed` says so.

    `account` is its service account under `--use-service-account-credentials`, as in Go's CCM.
    `why_not` says why the settings keep it from running, or "". `opt_in` means that "*" does not
    select it, only its name. Where there are several clouds each has this controller, which `sees`
    some of the nodes, or one is `shared` by all; one that works on the `undecided`, too, also looks
    after what no single cloud is responsible for.
    """

    name: str
    alias: str
    capability: str
    create: Callable[[Environment], Runnable]
    rules: tuple[Rule, ...]
    account: str
    why_not: Callable[[Settings], str] = _always
    needed: Callable[[Settings], bool] = _in_every_case
    opt_in: bool = False
    sees: Sees = Sees.OWN
    shared: Callable[[Settings], bool] = _never
    undecided: bool = False


_EVENTS = Rule("", "events", ("create", "patch"))
_WATCH = ("list", "watch")
_CLUSTER = Rule("", "namespaces", ("get",), ("kube-system",))
"""The right that a cache of a controller's own needs: its UID tells which cluster answers."""
_CERTIFICATES = "certificates.k8s.io"


def _no_routes(settings: Settings) -> str:
    if not settings.configure_cloud_routes:
        return "--configure-cloud-routes is false"
    return "" if settings.cluster_cidr else "--cluster-cidr is not given"


def _no_allocation(settings: Settings) -> str:
    return "" if settings.allocate_node_cidrs else "--allocate-node-cidrs is false"


def _kubelet_serving(env: Environment) -> Runnable:
    from proreus.controllers.kubelet_serving.controller import (  # noqa: PLC0415 - imports x509
        KubeletServingController,
    )

    return KubeletServingController(env)


def _ssh_keys(env: Environment) -> Runnable:
    from proreus.controllers.ssh_keys.controller import (  # noqa: PLC0415 - imports cryptography
        SSHKeysController,
    )

    return SSHKeysController(env)


def _no_ssh_user(settings: Settings) -> str:
    return "" if settings.ssh_user else "--ssh-user is not given"


def _asks_no_cloud(settings: Settings) -> bool:
    return not _asks_cloud(settings)


def _asks_cloud(settings: Settings) -> bool:
    return settings.allocate_node_cidrs and Mode(settings.cidr_allocator_type).asks_cloud


CONTROLLERS: tuple[Descriptor, ...] = (
    Descriptor(
        name="cloud-node-controller",
        alias="cloud-node",
        capability="instances",
        create=CloudNodeController,
        account="node-controller",
        rules=(
            Rule("", "nodes", ("get", *_WATCH, "patch")),
            Rule("", "nodes/status", ("patch",)),
            _EVENTS,
        ),
        undecided=True,
    ),
    Descriptor(
        name="cloud-node-lifecycle-controller",
        alias="cloud-node-lifecycle",
        capability="instances",
        create=CloudNodeLifecycleController,
        account="node-controller",
        rules=(Rule("", "nodes", ("get", *_WATCH, "patch", "delete")), _EVENTS),
    ),
    Descriptor(
        name="service-lb-controller",
        alias="service",
        capability="load_balancers",
        create=ServiceController,
        account="service-controller",
        rules=(
            Rule("", "services", ("get", *_WATCH, "patch")),
            Rule("", "services/status", ("patch",)),
            Rule("", "nodes", _WATCH),
            _EVENTS,
        ),
        sees=Sees.HOSTS,
        undecided=True,
    ),
    Descriptor(
        name="node-route-controller",
        alias="route",
        capability="routes",
        create=RouteController,
        account="route-controller",
        rules=(
            Rule("", "nodes", ("get", *_WATCH)),
            Rule("", "nodes/status", ("patch",)),
            _EVENTS,
        ),
        why_not=_no_routes,
        sees=Sees.ALL,
    ),
    Descriptor(
        name="node-ipam-controller",
        alias="nodeipam",
        capability="pod_cidrs",
        create=NodeIpamController,
        account="node-controller",
        rules=(
            Rule("", "nodes", ("get", *_WATCH, "patch")),
            Rule("", "nodes/status", ("patch",)),
            _EVENTS,
        ),
        why_not=_no_allocation,
        needed=_asks_cloud,
        sees=Sees.ALL,
        shared=_asks_no_cloud,
    ),
    Descriptor(
        name="node-lifecycle-controller",
        alias="nodelifecycle",
        capability="instances",
        create=NodeLifecycleController,
        account="node-controller",
        rules=(
            Rule("", "nodes", ("get", *_WATCH, "patch")),
            Rule("", "nodes/status", ("patch",)),
            Rule("", "pods", (*_WATCH, "delete")),
            Rule("", "pods/status", ("patch",)),
            Rule("coordination.k8s.io", "leases", ("get", *_WATCH)),
            _CLUSTER,
            _EVENTS,
        ),
        needed=_never,
        opt_in=True,
        sees=Sees.ALL,
        shared=_in_every_case,
    ),
    Descriptor(
        name="kubelet-serving-approving-controller",
        alias="kubelet-serving",
        capability="instances",
        create=_kubelet_serving,
        account="kubelet-serving-approving-controller",
        rules=(
            Rule("", "nodes", _WATCH),
            Rule(_CERTIFICATES, "certificatesigningrequests", ("get", *_WATCH)),
            Rule(_CERTIFICATES, "certificatesigningrequests/approval", ("patch",)),
            Rule(_CERTIFICATES, "signers", ("approve",), ("kubernetes.io/kubelet-serving",)),
            _CLUSTER,
            _EVENTS,
        ),
        opt_in=True,
        sees=Sees.ALL,
    ),
    Descriptor(
        name="persistentvolume-label-controller",
        alias="pvlabel",
        capability="volumes",
        create=PersistentVolumeLabelController,
        account="pvl-controller",
        rules=(Rule("", "persistentvolumes", ("get", *_WATCH, "patch")), _CLUSTER, _EVENTS),
        opt_in=True,
    ),
    Descriptor(
        name="ssh-keys-controller",
        alias="ssh-keys",
        capability="ssh_keys",
        create=_ssh_keys,
        account="node-controller",
        rules=(Rule("", "nodes", _WATCH),),
        why_not=_no_ssh_user,
        opt_in=True,
    ),
)


ON_BY_DEFAULT: tuple[Descriptor, ...] = tuple(one for one in CONTROLLERS if not one.opt_in)


def select(wanted: Sequence[str]) -> tuple[tuple[Descriptor, ...], tuple[str, ...]]:
    """Return the controllers that `--controllers` selects, and the problems with it.

    "*" means all that are not opt-in, "name" that controller, "-name" not that controller; a name
    counts more than "*".
    """
    names = {name: entry for entry in CONTROLLERS for name in (entry.name, entry.alias)}
    problems = [
        f"--controllers: unknown controller {item.removeprefix('-')!r}{_hint(item, names)}"
        for item in wanted
        if item != "*" and item.removeprefix("-") not in names
    ]
    on = {names[item].name for item in wanted if item in names}
    off = {names[item[1:]].name for item in wanted if item.startswith("-") and item[1:] in names}
    chosen = tuple(
        entry
        for entry in CONTROLLERS
        if entry.name in on or ("*" in wanted and not entry.opt_in and entry.name not in off)
    )
    return chosen, tuple(problems)


def _hint(item: str, names: dict[str, Descriptor]) -> str:
    close = difflib.get_close_matches(item.removeprefix("-"), names, n=1)
    return f", did you mean {close[0]}?" if close else f"; there are {', '.join(sorted(names))}"
