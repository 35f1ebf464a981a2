"""Define the flags that the official manager of GCE has of its own."""

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from proreus.cloudprovider.flags import ProviderFlag, boolean

RANGES: Final = "cloud-provider-gce-lb-src-cidrs"
RBS_DEFAULT: Final = "enable-rbs-default-l4-netlb"


def ranges(text: str) -> tuple[str, ...]:
    """Read CIDRs between commas.

    Raises:
        ValueError: A text is not a CIDR.
    """
    return tuple(str(ipaddress.ip_network(one.strip(), strict=False)) for one in text.split(","))


def _switch(text: str) -> ProviderFlag:
    return ProviderFlag(text, boolean, bare="true")


FLAGS: Final[Mapping[str, ProviderFlag]] = MappingProxyType(
    {
        RANGES: ProviderFlag(
            "Where Google checks the health of nodes from: CIDRs, separated by commas.", ranges
        ),
        "cloud-provider-gce-l7lb-src-cidrs": ProviderFlag(
            "The same for load balancers of HTTP; accepted, as they are not made here.", ranges
        ),
        RBS_DEFAULT: _switch("Leave new external Services to the controller of backend services."),
        "enable-l4-lb-annotations": _switch(
            "Accepted: annotations that name the parts of load balancers are not written."
        ),
        "enable-multi-networking": _switch("Accepted: nodes have one network here."),
        "enable-multi-project": _switch("Accepted: nodes are of one project here."),
    }
)
