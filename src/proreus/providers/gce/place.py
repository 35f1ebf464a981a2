"""Find out where the cluster is: project, zones, network and subnetwork."""

import ipaddress
from collections.abc import Iterable
from typing import Final

import msgspec

from proreus.cloudprovider.errors import ConfigError
from proreus.providers.gce.api import Api
from proreus.providers.gce.config import Global
from proreus.providers.gce.metadata import Metadata
from proreus.providers.gce.names import PUBLIC_ENDPOINT, last_part, path_in, region_of

AUTO_RANGE: Final = ipaddress.ip_network("10.128.0.0/9")
"""Where Google puts the subnetworks of networks in which it makes them by itself."""


class Network(msgspec.Struct, frozen=True):
    """A network as Google describes it; `ipv4_range` is that of a network without subnetworks."""

    auto_create_subnetworks: bool = msgspec.field(default=False, name="autoCreateSubnetworks")
    ipv4_range: str = msgspec.field(default="", name="IPv4Range")


class Subnetwork(msgspec.Struct, frozen=True):
    """A subnetwork as Google describes it."""

    name: str
    network: str
    ip_cidr_range: str = msgspec.field(name="ipCidrRange")


class _Zone(msgspec.Struct, frozen=True):
    name: str
    region: str


class _Project(msgspec.Struct, frozen=True):
    name: str


class Place(msgspec.Struct, frozen=True):
    """The place of a cluster.

    Attributes:
        project: The name of the project of instances and load balancers.
        network_project: The project of the network, of firewall rules and of routes.
        region: The region.
        zones: The zones in which nodes without a provider id are looked up.
        network: The path of the network.
        subnetwork: The path of the subnetwork, or "" where the cloud-config has none.
        base: The beginning of the URLs of resources.
        stack_type: Which family of addresses comes first.
    """

    project: str
    network_project: str
    region: str
    zones: frozenset[str]
    network: str
    subnetwork: str = ""
    base: str = PUBLIC_ENDPOINT
    stack_type: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether the network is another project's."""
        return self.project != self.network_project

    def url(self, path: str) -> str:
        """Return the URL of a resource, as the official manager writes it."""
        return f"{self.base}{path}"

    def in_region(self, kind: str, name: str = "") -> str:
        """Return the path of a regional resource, or of their collection."""
        return f"projects/{self.project}/regions/{self.region}/{kind}/{name}".rstrip("/")

    def in_zone(self, zone: str, kind: str, name: str = "") -> str:
        """Return the path of a zonal resource, or of their collection."""
        return f"projects/{self.project}/zones/{zone}/{kind}/{name}".rstrip("/")

    def everywhere(self, kind: str, name: str = "") -> str:
        """Return the path of a global resource, or of their collection."""
        return f"projects/{self.project}/global/{kind}/{name}".rstrip("/")

    def of_network(self, kind: str, name: str = "") -> str:
        """Return the path of a global resource of the network's project."""
        return f"projects/{self.network_project}/global/{kind}/{name}".rstrip("/")


async def find_place(settings: Global, metadata: Metadata, api: Api) -> Place:
    """Read the place from the cloud-config, and from the metadata server what that leaves out.

    Raises:
        ConfigError: The zone has another form.
        CloudError: The metadata server or Google gives no usable answer.
    """
    project = settings.project_id or await metadata.project()
    zone = settings.local_zone or await metadata.zone()
    network = settings.network_name or await metadata.network()
    region = region_of(zone)
    if not region:
        raise ConfigError((f"[Global] local-zone: {zone!r} is not a zone such as us-central1-a",))
    project = await _project_name(project, api)
    of_network = settings.network_project_id
    owner = await _project_name(of_network, api) if of_network else project
    zones = frozenset({zone})
    if settings.regional or settings.multizone:
        zones = await _zones(api, project, region) or zones
    base = settings.api_endpoint or PUBLIC_ENDPOINT
    return Place(
        project=project,
        network_project=owner,
        region=region,
        zones=zones,
        network=_path(network, f"projects/{owner}/global/networks"),
        subnetwork=_path(
            settings.subnetwork_name, f"projects/{owner}/regions/{region}/subnetworks"
        ),
        base=base if base.endswith("/") else f"{base}/",
        stack_type=settings.stack_type,
    )


def _path(named: str, collection: str) -> str:
    """Return the path of what a name or a URL names; "" for none."""
    if "/" in named:
        return path_in(named) or named
    return f"{collection}/{named}" if named else ""


async def _project_name(project: str, api: Api) -> str:
    """Return the name of a project that may be given by its number, as provider ids have it."""
    if not project.isdecimal():
        return project
    return (await api.get("projects.get", f"projects/{project}", _Project)).name


async def _zones(api: Api, project: str, region: str) -> frozenset[str]:
    found = await api.listed("zones.list", f"projects/{project}/zones", _Zone)
    return frozenset(one.name for one in found if last_part(one.region) == region)


async def find_subnetwork(place: Place, api: Api) -> str:
    """Return the path of the subnetwork for addresses; "" where the network has none, or several.

    Raises:
        CloudError: Google gives no usable answer.
    """
    network = await api.get("networks.get", place.network, Network)
    if network.ipv4_range or not network.auto_create_subnetworks:
        return ""
    path = f"projects/{place.network_project}/regions/{place.region}/subnetworks"
    found = await api.listed("subnetworks.list", path, Subnetwork)
    fitting = automatic(found, place.network)
    return f"{path}/{fitting[0]}" if len(fitting) == 1 else ""


def automatic(subnetworks: Iterable[Subnetwork], network: str) -> list[str]:
    """Return the names of subnetworks that Google made for a network by itself. Pure."""
    found = []
    for one in subnetworks:
        range_ = ipaddress.ip_network(one.ip_cidr_range)
        is_within = range_[0] in AUTO_RANGE and range_[-1] in AUTO_RANGE
        if path_in(one.network) == network and is_within:
            found.append(one.name)
    return sorted(found)
