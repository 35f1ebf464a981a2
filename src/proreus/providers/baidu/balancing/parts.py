"""The values of a load balancer of Baidu AI Cloud: desired, and observed. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.providers.baidu.balancing.annotations import Bandwidth

Key = tuple[str, int]
"""Transport and port: what no two listeners of a load balancer share."""
HTTP: Final = "HTTP"
UDP: Final = "UDP"
TCP: Final = "TCP"
NEW: Final = "new"
"""The id of a part to which the cloud has not given one yet."""
AVAILABLE: Final = "available"
BOUND: Final = "binded"
"""States of load balancers and addresses."""


class Listener(msgspec.Struct, frozen=True):
    """A listener: one port of a load balancer.

    Attributes:
        protocol: The protocol: TCP, UDP, HTTP or another one that we never make.
        port: Where clients connect.
        node_port: Where the machines listen.
        scheduler: The algorithm that chooses a back end.
        settings: All other settings, by the API's names.
    """

    protocol: str
    port: int
    node_port: int
    scheduler: str
    settings: Mapping[str, Any] = {}

    @property
    def key(self) -> Key:
        """The transport and the port."""
        return UDP if self.protocol == UDP else TCP, self.port

    @property
    def title(self) -> str:
        """The name of the part in messages."""
        return f"listener {self.protocol}/{self.port}"


class Mark(msgspec.Struct, frozen=True):
    """The contents of a load balancer's description.

    Attributes:
        text: The text for people.
        cluster_uid: The cluster that it belongs to; "" without our mark.
        service_uid: The UID of the Service that it was made for.
        service: The namespace/name of that Service; "" where there was no room.
        is_given: Whether a Service has named it, so that it is never deleted.
        is_kept: Whether it stays when the Service is deleted.
        own: The public address that its owner had bound to it before a Service named it, or "".
        eip: The public address that the official manager has bought for it, or "".
        made: The record of its inputs, or "".
    """

    text: str = ""
    cluster_uid: str = ""
    service_uid: str = ""
    service: str = ""
    is_given: bool = False
    is_kept: bool = False
    own: str = ""
    eip: str = ""
    made: str = ""

    @property
    def stays(self) -> bool:
        """Whether the load balancer is emptied, not deleted, once the Service needs it no more."""
        return self.is_given or self.is_kept


class Balancer(msgspec.Struct, frozen=True):
    """A load balancer.

    Attributes:
        id: The id that the cloud gave it.
        name: Its name.
        address: Its address in the VPC.
        public_ip: The public address that is bound to it, or "".
        status: Its status, in the cloud's words.
        vpc: The id of its VPC.
        mark: The mark that its description holds.
        listeners: The listeners that it has.
        members: The ids of its back ends.
    """

    id: str
    name: str = ""
    address: str = ""
    public_ip: str = ""
    status: str = AVAILABLE
    vpc: str = ""
    mark: Mark = Mark()
    listeners: tuple[Listener, ...] = ()
    members: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        """The name of the part in messages."""
        return f"load balancer {self.name or self.id}"


class Eip(msgspec.Struct, frozen=True):
    """A public address.

    Attributes:
        ip: The address.
        status: Its status, in the cloud's words.
        holder: The id of the object that it is bound to, or "".
        megabits: Its bandwidth.
        payment: Prepaid or Postpaid.
        billing: ByTraffic or ByBandwidth.
        is_ours: Whether it was surely bought for the Service.
        is_tagged: Whether its own tags prove that it was bought for the Service.
    """

    ip: str
    status: str = AVAILABLE
    holder: str = ""
    megabits: int = 0
    payment: str = ""
    billing: str = ""
    is_ours: bool = False
    is_tagged: bool = False

    @property
    def title(self) -> str:
        """The name of the part in messages."""
        return f"public address {self.ip}"


class Desired(msgspec.Struct, frozen=True):
    """The desired load balancer of a Service.

    Attributes:
        ref: The Service.
        name: Its name; "" where the Service has named a load balancer, which keeps its own.
        text: The text for people in its description.
        vpc: The id of the VPC in which it is made.
        subnet: The id of the subnet in which it is made.
        vip: Whether it gets an address of Baidu's own network.
        is_kept: Whether it stays when the Service is deleted.
        listeners: The listeners, one for each port.
        candidates: The ids of the machines that may be back ends.
        uncertain: The ids of machines that the cloud says nothing about now: they are neither added
            nor removed.
        bare: The ids of those machines of bare metal, of which nobody tells the VPC.
        most: The most back ends that it may have.
        is_internal: Whether it has no public address.
        requested: The public address that the Service names, or "".
        eip: The settings of the public address to buy where the Service names none.
        tags: The tags with our marks for the address that is bought.
    """

    ref: LoadBalancerRef
    name: str
    text: str
    vpc: str
    subnet: str
    listeners: tuple[Listener, ...]
    candidates: frozenset[str]
    most: int
    uncertain: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    vip: bool = False
    is_kept: bool = False
    is_internal: bool = False
    requested: str = ""
    eip: Bandwidth = Bandwidth()
    tags: Mapping[str, str] = {}


class Observed(msgspec.Struct, frozen=True):
    """The observed state in the cloud: load balancers and addresses of a Service.

    Attributes:
        balancer: The load balancer that it has, or None.
        spare: Other load balancers that were made for the Service, or that it named.
        eips: Addresses that are bound to one of them, that were bought for it, or that it names.
        refused: By a machine's id the reason why the cloud has refused it as a back end.
    """

    balancer: Balancer | None = None
    spare: tuple[Balancer, ...] = ()
    eips: tuple[Eip, ...] = ()
    refused: Mapping[str, str] = {}

    @property
    def held(self) -> frozenset[str]:
        """The addresses of the load balancers, and those that are kept for the Service.

        One that somebody has bound to something else is that one's, whoever bought it.
        """
        there = [one for one in (self.balancer, *self.spare) if one is not None]
        ids = {"", *(one.id for one in there)}
        bought = (one.ip for one in self.eips if one.holder in ids)
        return frozenset({*bought, *(ip for one in there for ip in (one.address, one.public_ip))})

    def eip(self, ip: str) -> Eip | None:
        """Return the observed public address with this IP, if there is one."""
        return next((one for one in self.eips if one.ip == ip), None)

    def bound_to(self, balancer: str) -> Eip | None:
        """Return the public address that is bound to a load balancer, if there is one."""
        return next((one for one in self.eips if balancer and one.holder == balancer), None)
