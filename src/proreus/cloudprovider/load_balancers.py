"""The capability `LoadBalancers`.

The desired load balancer and the verbs that a cloud implements.
"""

from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from typing import Literal, Protocol

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.kube.objects import LoadBalancerIngress, Service, has_local_traffic


class LoadBalancerRef(msgspec.Struct, frozen=True):
    """A reference to a load balancer by its Service, also when the Service is gone.

    `name` is the Go framework's default name; `last_ingress` what the Service's status said
    last, unless that was withdrawn (`Pending`); `service` the Service if there still is one.
    Deletion finds objects by ownership; what matters then of the annotations is kept on the objects
    when they are made or changed. Today's annotations prove nothing by themselves: they may spare
    an object, and tell which of those that an official manager left without our marks is meant.
    """

    cluster: ClusterIdentity
    namespace: str
    service_name: str
    uid: str
    name: str
    last_ingress: tuple[LoadBalancerIngress, ...] = ()
    service: Service | None = None

    @property
    def key(self) -> str:
        """The Service as namespace/name."""
        return f"{self.namespace}/{self.service_name}"


class Frontend(msgspec.Struct, frozen=True):
    """A port of a load balancer on one IP family; `node_port` is 0 if there is none."""

    protocol: str
    port: int
    node_port: int
    family: str
    name: str = ""
    app_protocol: str | None = None


class Host(msgspec.Struct, frozen=True):
    """A node that receives traffic; `addresses` by family, the preferred one first."""

    node: str
    provider_id: str
    addresses: Mapping[str, tuple[str, ...]] = {}


class EndpointTarget(msgspec.Struct, frozen=True):
    """A ready pod behind a Service, for clouds that send traffic to pods."""

    address: str
    node: str
    family: str


class HealthCheck(msgspec.Struct, frozen=True):
    """A health check of hosts: an HTTP GET on `port` and `path`, or TCP if `path` is "".

    `port` 0 means each frontend's own node port.
    """

    port: int = 0
    path: str = ""


class LoadBalancer(msgspec.Struct, frozen=True):
    """The desired load balancer of one Service, as the framework computes it.

    `source_ranges` are by family (a family without any lets nobody in); `affinity_seconds` is None
    without ClientIP affinity. `service` is there for the cloud's own annotations.
    """

    ref: LoadBalancerRef
    service: Service
    marks: Mapping[str, str]
    frontends: tuple[Frontend, ...]
    hosts: tuple[Host, ...]
    health_check: HealthCheck
    source_ranges: Mapping[str, tuple[str, ...]]
    families: tuple[str, ...] = ("IPv4",)
    endpoints: tuple[EndpointTarget, ...] = ()
    affinity_seconds: int | None = None
    local_traffic: bool = False
    requested_address: str = ""


class Endpoints(Enum):
    """The endpoints of a Service that a cloud needs to know."""

    NONE = "none"
    NODES = "nodes"
    PODS = "pods"


class HostPolicy(msgspec.Struct, frozen=True):
    """The choice of a Service's hosts: nodes whose labels hold all of `selector`.

    A label whose value is None may have any value.
    Frontends, source ranges and addresses of other IP families than `families` are left out of
    what is desired; a Service that asks for none of these is refused. `endpoints` says which of
    its endpoints the desired load balancer holds.
    """

    selector: Mapping[str, str | None] = {}
    families: tuple[str, ...] = ("IPv4", "IPv6")
    endpoints: Endpoints = Endpoints.NONE


def nodes_with_pods(service: Service, *families: str) -> HostPolicy:
    """Return the policy of a cloud whose health checks do not find out which nodes have pods.

    Where only nodes with ready pods may get traffic (`externalTrafficPolicy: Local`), the policy
    asks for these.

    Args:
        service: The Service.
        families: The IP families that the cloud has.
    """
    endpoints = Endpoints.NODES if has_local_traffic(service) else Endpoints.NONE
    return HostPolicy(families=families, endpoints=endpoints)


class Ensured(msgspec.Struct, frozen=True):
    """The answer that the load balancer is as desired.

    Each point of `ingress` has an IP address or a host name. `rejected` says by node name why a
    node could not be a host; `annotations` are set on the Service by the framework.
    """

    ingress: tuple[LoadBalancerIngress, ...] = ()
    rejected: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Pending(msgspec.Struct, frozen=True):
    """The answer that the cloud still works on it: ask again after `after` seconds. No failure.

    `withdrawn` is for `delete`, where the address in the Service's status may be what proves whose
    parts are: all that is to go bears marks now, so the address is taken out of the status before
    `delete` is called again, with a `LoadBalancerRef` without `last_ingress`. From then on it
    proves nothing, whoever gets it next and whichever process goes on. Also `ensure` says so, like
    `CloudError.disowns`, of an address that the load balancer has left.
    """

    after: float
    reason: str
    ingress: tuple[LoadBalancerIngress, ...] = ()
    withdrawn: bool = False


class Done(msgspec.Struct, frozen=True):
    """The answer that a deletion is complete: no part is left.

    `found` is False if there was nothing to delete. Of a Service that has an address that is
    believed when a second `delete`, 10 seconds later, says so too.
    """

    found: bool = True


def withdraws(answer: Pending | CloudError) -> bool:
    """Tell whether an answer takes the address out of the Service's status."""
    return answer.withdrawn if isinstance(answer, Pending) else answer.disowns


EnsureAnswer = Ensured | Pending | CloudError
DeleteAnswer = Done | Pending | CloudError


class PartChange(msgspec.Struct, frozen=True):
    """A change of one part of a load balancer that `ensure` would make; a line of `proreus plan`.

    `part` names the part as the cloud does ("listener TCP/80", "target i-0a1b"), `detail` says what
    it will be or what differs.
    """

    action: Literal["create", "change", "delete"]
    part: str
    detail: str = ""


class Previews(Protocol):
    """An addition to `LoadBalancers`, for `proreus plan`.

    A provider that observes, plans purely and then applies gets previews for nothing (`foresee`).
    """

    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        """Return what `ensure` would change, by the ref's `uid`; nothing for what is as desired.

        Reads only. An error is what `ensure` would answer; `NotSupported` where it cannot be told.
        What only an earlier change would show, such as an id, is said as far as it is known.
        """


class LoadBalancers(Protocol):
    """The capability of a cloud to balance load. Answers by the ref's `uid`.

    A Service that an answer leaves out is unknown.
    """

    def group(self, lb: LoadBalancerRef) -> Hashable:
        """Return the group of a load balancer; at most one verb runs for a group at a time.

        No annotation may choose the group: a Service that names another's object would make that
        Service wait for its verbs.
        """

    def host_policy(self, service: Service) -> HostPolicy:
        """Return which nodes and endpoints the Service's load balancer needs. No I/O.

        Raises:
            CloudError: No host can be chosen, for instance because of a wrong annotation
                (`InvalidRequest`).
        """

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Make or change load balancers, which are all of one group, to be as desired."""

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Do as `ensure`, when only the hosts differ from the last `ensure`."""

    async def delete(self, refs: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        """Delete every part of the load balancers. Idempotent: a missing part is no error."""

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List every cloud object that this cluster has made, by its marks.

        A mark that may be another cluster's does not count: an object that is listed without its
        Service is a leak.

        Raises:
            NotSupported: The cloud cannot list them; leaks and drift then go unseen.
        """

    def fingerprint(self, desired: LoadBalancer) -> str:
        """Return the `fingerprint` that `list_owned` shows if all is as desired. No I/O.

        It is a digest of what a listing shows, or of what `ensure` has recorded (`Record`); the
        latter is believed for a day at most. "" where there is none: every pass over all Services
        then ensures this one.
        """
