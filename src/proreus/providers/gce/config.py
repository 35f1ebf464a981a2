"""The cloud-config of the provider `gce`: the official manager's gce.conf, read unmodified.

Names that the official manager does not know it passes over with a warning; so it is here.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import ClassVar, Final

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.config_values import camel_case
from proreus.cloudprovider.ownership import Tenants

IPV4: Final = "IPV4"
IPV6: Final = "IPV6"
DUAL: Final = "IPV4_IPV6"
NO_TOKEN_URL: Final = "nil"  # noqa: S105 - a word of the official file
"""The value of `token-url` for the credentials that Google's libraries find by themselves."""
ILB_SUBSETS: Final = "ILBSubsets"
SKIP_GROUPS: Final = "SkipIGsManagement"

_STACKS = frozenset({"", IPV4, IPV6, DUAL})
_TAG = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_CLUSTER_ID = re.compile(r"[-a-z0-9]{1,24}")


class Global(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Global]: which project, zone and network, and with which credentials.

    Attributes:
        token_url: Where tokens are issued for a token of the metadata server; "nil" for the
            credentials that Google's libraries find (GOOGLE_APPLICATION_CREDENTIALS).
        token_body: The body that is sent to `token_url`.
        project_id: The project, by its name or number; by default that of this machine.
        network_project_id: The project of the network, for a shared VPC.
        network_name: The network, by its name or URL; by default that of this machine.
        subnetwork_name: The subnetwork, by its name or URL; needed where the network has several
            in the region.
        stack_type: The family of addresses that comes first: IPV6, else IPv4.
        secondary_range_name: The range of the subnetwork from which pods get addresses.
        node_tags: The network tags of nodes, which firewall rules name; by default the longest
            tag of each node that its name begins with.
        node_instance_prefix: The beginning of the names of nodes. Officially it filters lists; here
            it is not needed.
        regional: Whether nodes are in all zones of the region.
        multizone: The name that `regional` has in older files.
        api_endpoint: The URL of the Compute API.
        container_api_endpoint: The URL of the Kubernetes Engine API, which only `proreus clusters`
            asks.
        local_zone: The zone of this machine, where the metadata server is not to be asked for it.
        alpha_features: ILBSubsets leaves new internal Services to another controller, unless
            they get a subset here; SkipIGsManagement leaves instance groups to it.
    """

    ignore_unknown: ClassVar[bool] = True

    token_url: str = ""
    token_body: str = ""
    project_id: str = ""
    network_project_id: str = ""
    network_name: str = ""
    subnetwork_name: str = ""
    stack_type: str = ""
    secondary_range_name: str = ""
    node_tags: tuple[str, ...] = ()
    node_instance_prefix: str = ""
    regional: bool = False
    multizone: bool = False
    api_endpoint: str = ""
    container_api_endpoint: str = ""
    local_zone: str = ""
    alpha_features: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if self.stack_type not in _STACKS:
            yield "stack-type: must be one of IPV4, IPV4_IPV6, IPV6"
        if self.local_zone and "-" not in self.local_zone:
            yield "local-zone: give a zone such as us-central1-a"
        for name, url in (("api-endpoint", self.api_endpoint), ("token-url", self.token_url)):
            if url and url != NO_TOKEN_URL and not url.startswith(("https://", "http://")):
                yield f"{name}: give a URL such as https://compute.googleapis.com/compute/v1/"
        for tag in self.node_tags:
            if not _TAG.fullmatch(tag):
                yield f"node-tags: {tag!r} is not a network tag: small letters, digits and dashes"


class LoadBalancer(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [LoadBalancer], of Proreus: about the load balancers of Services.

    Attributes:
        enabled: Whether Services get load balancers.
        cluster_id: The cluster's id in the names of objects that its Services share, where the
            ConfigMap kube-system/ingress-uid does not hold it.
        backend_services: Whether external Services that ask for a backend service get one here;
            officially another controller makes these.
        subsetting: Whether new internal Services get a subset of the nodes here, in groups of
            endpoints; officially another controller makes these.
        dual_stack: Whether Services get IPv6 addresses, too; not those with a target pool. The
            subnetwork must have a range of IPv6.
    """

    enabled: bool = True
    cluster_id: str = ""
    backend_services: bool = False
    subsetting: bool = False
    dual_stack: bool = False

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if self.cluster_id and not _CLUSTER_ID.fullmatch(self.cluster_id):
            yield "cluster-id: give 1 to 24 small letters, digits and dashes"


class Client(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Client], of Proreus: how long calls may take.

    Attributes:
        timeout: How long to wait for an answer.
        operation_timeout: How long a verb waits for one operation of Google before it lets others
            work meanwhile. Google itself answers after two minutes.
    """

    timeout: timedelta = timedelta(seconds=30)
    operation_timeout: timedelta = timedelta(seconds=125)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        for name, value in (
            ("timeout", self.timeout),
            ("operation-timeout", self.operation_timeout),
        ):
            if value <= timedelta():
                yield f"{name}: must be more than 0s"


class GCEConfig(ConfigSection, frozen=True, kw_only=True, rename=camel_case()):
    """The whole cloud-config."""

    ignore_unknown: ClassVar[bool] = True

    global_: Global = Global()
    load_balancer: LoadBalancer = LoadBalancer()
    client: Client = Client()
    tenants: Tenants = Tenants()
