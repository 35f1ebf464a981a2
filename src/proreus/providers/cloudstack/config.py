"""The cloud-config of the provider `cloudstack`: the official manager's file, read unmodified.

The official manager refuses names that it does not know; so they are refused here. The sections
[Client], [Node], [Route] and [Tenants] are ours.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.ownership import Tenants
from proreus.cloudprovider.sections import Client

UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""An id of CloudStack."""


class Global(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Global]: which CloudStack, and with which keys.

    Attributes:
        api_url: The address of the API, such as https://cloud.example.org/client/api.
        api_key: The API key of a user.
        secret_key: Its secret key, which signs requests.
        ssl_no_verify: Whether certificates are not checked.
        project_id: The project that the nodes are in; "" where they are in the account itself.
        zone: The zone of the manager; the zone of a node is that of its machine.
        region: The region of all nodes; by default each node's zone.
    """

    api_url: str
    api_key: str
    secret_key: str
    ssl_no_verify: bool = False
    project_id: str = ""
    zone: str = ""
    region: str = ""

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        url = urlsplit(self.api_url)
        if url.scheme not in {"http", "https"} or not url.hostname:
            yield "api-url: give a URL such as https://cloud.example.org/client/api"
        elif url.query or url.fragment:
            yield "api-url: give it without what begins with ? or #"
        for key in ("api_key", "secret_key"):
            if not getattr(self, key).strip():
                yield f"{key.replace('_', '-')}: is empty: give the key that CloudStack shows"
        if self.project_id and not UUID.fullmatch(self.project_id):
            yield "project-id: give the id of the project, a UUID"


class OfNodes(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Node], of ours: what Nodes show of their machines.

    Attributes:
        dual_stack: Whether a Node gets the IPv6 address of its machine beside the IPv4 address.
    """

    dual_stack: bool = False


class Route(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Route], of ours: the VPC that leads to pods.

    Attributes:
        vpc_id: The VPC that gets the routes of pods; without it there are none.
    """

    vpc_id: str = ""

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if self.vpc_id and not UUID.fullmatch(self.vpc_id):
            yield "vpc-id: give the id of the VPC, a UUID"


class CloudStackConfig(ConfigSection, frozen=True, kw_only=True):
    """The whole file."""

    global_: Global
    client: Client = msgspec.field(default_factory=Client)
    node: OfNodes = msgspec.field(default_factory=OfNodes)
    route: Route = msgspec.field(default_factory=Route)
    tenants: Tenants = msgspec.field(default_factory=Tenants)
