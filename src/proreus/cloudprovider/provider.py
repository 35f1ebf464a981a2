"""The base class of providers: what Go calls `cloudprovider.Interface`.

`Initialize` is `start` and `close`; `LoadBalancer`, `Instances` (with Zones and InstancesV2),
`Clusters`, `Routes`, `PVLabeler` and `AddSSHKeyToAllInstances` are the attributes
`load_balancers`, `instances`, `clusters`, `routes`, `volumes` and `ssh_keys`, each None where
the cloud lacks it. `ProviderName` is `name`, `HasClusterID` is `has_cluster_id`.

What a provider does wrong harms only the object that it is about: an exception that is no
CloudError (SystemExit, too), an answer of a wrong type, one that is left out or that nobody
asked for, a verb that hangs or swallows its cancellation. Each is counted in
`proreus_provider_faults_total`, named in the log and told on the object. Nothing
protects from these:

* A function that waits or computes for long without `await`, such as a blocking SDK call outside
  of `Context.call(..., blocking=True)`. Until it returns every controller, leader election and
  health stand still; all that the process can do is to name the function in its log.
* The same goes for a function without I/O (`owns`, `scope`, `group`, `host_policy`, `fingerprint`,
  `batch_size`) that does any, or does not return. They are called for every object all the time.
* A callback of the event loop, or a signal handler, that calls `sys.exit` or `os._exit`.
* A call that swallows its cancellation does go on: nothing is asked for its group until it ends.
  A provider with more hanging calls than a controller has slots, the slow ones included, holds
  up that controller until their time (ten minutes) is over.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import msgspec

from proreus.cloudprovider.config_merge import ConfigSource
from proreus.cloudprovider.errors import CloudError, ConfigError
from proreus.cloudprovider.flags import ProviderFlag
from proreus.cloudprovider.instances import Instances
from proreus.cloudprovider.load_balancers import LoadBalancers
from proreus.cloudprovider.routes import Routes
from proreus.cloudprovider.standby import Standby
from proreus.kube.admission import Webhook
from proreus.kube.objects import Node, PersistentVolume

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context


T = TypeVar("T", bound=msgspec.Struct)
C = TypeVar("C", bound="_Closable")


class _Closable(Protocol):
    async def close(self) -> None:
        """Release the resource."""


class Clusters(Protocol):
    """Go's capability Clusters: what `proreus clusters` prints; the manager does not call it."""

    async def list(self) -> Sequence[str]:
        """Return the names of the clusters, each a line of text."""

    async def master(self, name: str) -> str:
        """Return the address of the cluster's control plane.

        Raises:
            InvalidRequest: There is no such cluster.
        """


class Volumes(Protocol):
    """Go's capability PVLabeler: topology labels of volumes, by which pods stay near them.

    `labels` only reads: standbys and commands that only look ask for it, too.
    """

    async def labels(
        self, volumes: Sequence[PersistentVolume]
    ) -> Mapping[str, Mapping[str, str] | CloudError]:
        """Return zone and region of each volume, by its name; nothing for those of other clouds.

        A volume that may be used in several zones has them in one label, `a__b`. The answer for a
        volume that is not there is `InvalidRequest`. `per_volume` makes this of a function for
        one volume.
        """


class SSHKeys(Protocol):
    """Go's capability to add an SSH key to all instances."""

    async def add_to_all_instances(self, user: str, public_key: str) -> None:
        """Let `user` log in with `public_key` on every instance that there is now.

        It is called again after new nodes have joined; a key that an instance has already is no
        error.
        """


class PodCIDRs(Protocol):
    """The capability of a cloud to give pod address blocks to instances (such as alias ranges)."""

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, tuple[str, ...]]:
        """Return the pod address blocks of each node, by name; a node left out is unknown."""

    async def assign(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """Give the blocks to the node's instance; blocks that it has already are no error."""

    async def release(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """Take the blocks from the node's instance; a missing instance or block is no error."""


class CloudProvider:
    """The base class of a cloud: declare class attributes, set the capabilities in `start`.

    Attributes:
        name: Its name in `--cloud-provider`.
        names: Further names that select it.
        config_type: The Struct that the cloud-config is decoded into, or None for no config.
        config_environment: The environment variables that stand for fields which the cloud-config
            leaves out, such as {"HCLOUD_TOKEN": "token", "CATTLE_URL": "global.url"}.
        flags: Its own flags by their names without dashes, such as {"user-agent": ProviderFlag(…)};
            what is given for them is in `Context.flags`.
        needs: What `context.listers` must offer: "nodes", "services", "endpoint_slices",
            "namespaces" (their names and labels, by their names), or "config_maps/NAME", the
            ConfigMap of that name in kube-system as it was at the start, if there is one; or
            "board", for `context.board`. Endpoint slices are also needed where a `HostPolicy`
            asks for endpoints. What only some cloud-configs need is added in `__init__`. A
            namespace that is not there may only not be there yet, or not be readable: raise a
            `CloudError` rather than decide without it.
        may_need: The caches that a cloud-config may add to `needs`: roles that are printed without
            a cloud-config give rights to these, too.
        confirm: Seconds for which the cloud must say that something is gone which was there, such
            as a load balancer whose address the Service's status has: lists lag.
        left_finalizers: Finalizers that the official manager leaves on Services: they are removed
            with ours, once the load balancer is gone.
        machine_of: A function without I/O, where one machine's provider id can be written in
            several ways: it returns what is the same in all of them, or None if a text is none. So
            a new Node gets no machine that another one has under another spelling.
        watched_files: Files that `start` reads besides the cloud-config, such as one with
            credentials that the cloud-config names; set it in `__init__`. When one changes, a
            new provider is made and started as if the cloud-config had changed.
        standby: The work of replicas that do not lead; set it in `__init__`. When the replica
            begins to lead, its `end` is called before `start`.
        one_leads: Whether one replica has to run all controllers, such as where `start` takes over
            what only one machine may do: then none has a lease of its own. Set it in `__init__`.
        webhooks: Admission webhooks by the names that enable them in `--webhooks`; set it in the
            class or in `__init__`. Every replica serves them, also before `start` and without it.
            After a change of the cloud-config those of the first provider are still served.
    """

    name: ClassVar[str]
    names: ClassVar[tuple[str, ...]] = ()
    config_type: ClassVar[type[msgspec.Struct] | None] = None
    config_environment: ClassVar[Mapping[str, str]] = MappingProxyType({})
    flags: ClassVar[Mapping[str, ProviderFlag]] = MappingProxyType({})
    needs: frozenset[str] = frozenset()
    may_need: ClassVar[frozenset[str]] = frozenset()

    instances: Instances | None = None
    load_balancers: LoadBalancers | None = None
    routes: Routes | None = None
    clusters: Clusters | None = None
    volumes: Volumes | None = None
    ssh_keys: SSHKeys | None = None
    pod_cidrs: PodCIDRs | None = None
    standby: Standby | None = None
    one_leads: bool = False
    has_cluster_id: bool = True
    confirm: float = 10.0
    left_finalizers: tuple[str, ...] = ()
    machine_of: Callable[[str], str | None] = staticmethod(str)
    watched_files: tuple[str, ...] = ()
    webhooks: Mapping[str, Webhook] = MappingProxyType({})
    _opened: tuple["_Closable", ...] = ()

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Take the decoded cloud-config. No I/O here: a standby replica does this too.

        Heavy modules that only some configs need are imported here and not in `start`, which
        shares the event loop; an ImportError says which extra of the package is missing.
        """
        self.config = config

    @classmethod
    def config_secret(cls, flags: Mapping[str, Any]) -> str:
        """Return the Secret that the provider's own flags name as that of the cloud-config.

        The Secret stands for `--cloud-config-secret` where that flag is not given; beside
        `--cloud-config` it counts as far as `config_source` says.

        Args:
            flags: The values given for `flags`, by name.

        Returns:
            The Secret's namespace, name and key with slashes between them, or "" for none.
        """
        del flags
        return ""

    @classmethod
    def config_source(cls, text: str) -> ConfigSource:
        """Return which config counts where `config_secret` names a Secret and there is a file, too.

        Args:
            text: The text of the file; nothing is raised for a wrong text, which is reported later.
        """
        del text
        return ConfigSource.FILE

    def config_as(self, type_: type[T]) -> T:
        """Return the cloud-config if it is of the given type.

        Raises:
            ConfigError: There is none, or it is of another type.
        """
        if not isinstance(self.config, type_):
            raise ConfigError((f"--cloud-config: the provider {self.name} needs one",))
        return self.config

    def closing(self, resource: C) -> C:
        """Return what `start` has opened; `close` closes it, the last one first."""
        self._opened = (*self._opened, resource)
        return resource

    async def start(self, context: "Context") -> None:
        """Open sessions and set the capabilities. Called only on the leader.

        Raises:
            CloudError: The cloud cannot be used now; the framework tries again with backoff.
        """

    async def close(self) -> None:
        """Release what `start` took. Called once, also after a failed `start`."""
        async with AsyncExitStack() as stack:
            for resource in self._opened:
                stack.push_async_callback(resource.close)
            self._opened = ()
