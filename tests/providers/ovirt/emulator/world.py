"""What is in the emulated engine: data centers, clusters, hosts, virtual machines, tags."""

import uuid
from collections.abc import Iterable, Sequence

import msgspec

MAC = "56:6f:00:00"


class Device(msgspec.Struct):
    """What a guest agent reports of one network device."""

    name: str
    mac: str
    ips: list[str]


class Nic(msgspec.Struct):
    """A network card."""

    id: str
    name: str
    mac: str


class Vm(msgspec.Struct):
    """A virtual machine, without what nobody reads."""

    id: str
    name: str
    cluster: str
    host: str
    status: str = "up"
    fqdn: str = ""
    instance_type: str = ""
    description: str = ""
    comment: str = ""
    memory: int = 4 << 30
    pinned: bool = False
    tags: list[str] = []
    nics: list[Nic] = []
    devices: list[Device] = []


class Named(msgspec.Struct):
    """A data center, a cluster, a host or an instance type, and what it is in."""

    id: str
    name: str
    parent: str = ""
    status: str = "up"


class World:
    """One installation: a data center with a cluster and two hosts, and no machine yet."""

    def __init__(self) -> None:
        self.data_centers: dict[str, Named] = {}
        self.clusters: dict[str, Named] = {}
        self.hosts: dict[str, Named] = {}
        self.instance_types: dict[str, Named] = {}
        self.vms: dict[str, Vm] = {}
        self.parents: dict[str, str] = {}
        """Tags by those below them."""
        self.hidden: set[str] = set()
        """Clusters that our user is not shown."""
        self._count = 0
        for name in ("Tiny", "Small", "Medium", "Large", "XLarge"):
            self._add(self.instance_types, name)
        self.center = self._add(self.data_centers, "north")
        self.cluster = self.add_cluster("rack-1", self.center)

    @staticmethod
    def _add(kind: dict[str, Named], name: str, parent: str = "") -> str:
        id_ = str(uuid.uuid4())
        kind[id_] = Named(id_, name, parent)
        return id_

    def add_center(self, name: str) -> str:
        return self._add(self.data_centers, name)

    def add_cluster(self, name: str, center: str, hosts: int = 2) -> str:
        id_ = self._add(self.clusters, name, center)
        for number in range(hosts):
            self._add(self.hosts, f"{name}-host-{number}", id_)
        return id_

    def type_called(self, name: str) -> str:
        """The id of an instance type."""
        return next(one.id for one in self.instance_types.values() if one.name == name)

    def add_vms(self, names: Iterable[str], **fields: object) -> list[str]:
        """Start machines whose guests report a name and an address; their ids."""
        return [self._add_vm(name, **fields) for name in names]

    def _add_vm(self, name: str, **fields: object) -> str:
        self._count += 1
        number = self._count
        mac = f"{MAC}:{number // 256:02x}:{number % 256:02x}"
        cluster = str(fields.get("cluster", self.cluster))
        hosts = self.hosts_of(cluster)
        vm = Vm(
            id=str(uuid.uuid4()),
            name=name,
            cluster=cluster,
            host=hosts[number % len(hosts)].id,
            fqdn=name,
            nics=[Nic(str(uuid.uuid4()), "nic1", mac)],
            devices=[Device("eth0", mac, [f"10.0.{number // 250}.{number % 250 + 1}"])],
        )
        self.vms[vm.id] = msgspec.structs.replace(vm, **fields)
        return vm.id

    def hosts_of(self, cluster: str) -> Sequence[Named]:
        return [one for one in self.hosts.values() if one.parent == cluster]

    def stop(self, id_: str, status: str = "down") -> None:
        """Let a machine be off: the engine forgets what its guest reported, and its host."""
        vm = self.vms[id_]
        vm.status, vm.fqdn, vm.devices, vm.host = status, "", [], ""

    def remove(self, id_: str) -> None:
        del self.vms[id_]

    def maintain(self, id_: str) -> None:
        """Put a host into maintenance: its machines move; those that are pinned hold it up."""
        host = self.hosts[id_]
        others = [one for one in self.hosts_of(host.parent) if one.id != id_]
        for vm in self.vms.values():
            if vm.host == id_ and not vm.pinned:
                vm.host = others[0].id
        is_empty = all(vm.host != id_ for vm in self.vms.values())
        host.status = "maintenance" if is_empty else "preparing_for_maintenance"

    def fail_host(self, id_: str) -> None:
        """Let a host not answer: of its machines nothing is known any more."""
        self.hosts[id_].status = "non_responsive"
        for vm in self.vms.values():
            if vm.host == id_:
                vm.status = "unknown"

    def tags_below(self, tag: str) -> set[str]:
        """A tag and all below it: a search for it finds machines that have any of them."""
        found = {tag}
        while more := {one for one, above in self.parents.items() if above in found} - found:
            found |= more
        return found
