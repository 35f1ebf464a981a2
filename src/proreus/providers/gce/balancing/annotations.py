"""Read the annotations of Services that the official manager of GCE knows. Pure."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.annotations import AnnotationReader
from proreus.kube.objects import Service

TYPE: Final = "networking.gke.io/load-balancer-type"
OLD_TYPE: Final = "cloud.google.com/load-balancer-type"
TIER: Final = "cloud.google.com/network-tier"
SHARE: Final = "alpha.cloud.google.com/load-balancer-backend-share"
OLD_SHARE: Final = "cloud.google.com/load-balancer-backend-share"
GLOBAL_ACCESS: Final = "networking.gke.io/internal-load-balancer-allow-global-access"
SUBNET: Final = "networking.gke.io/internal-load-balancer-subnet"
RBS: Final = "cloud.google.com/l4-rbs"

INTERNAL_BEFORE: Final = "gke.networking.io/l4-ilb-v1"
"""The finalizer of the official manager on internal Services."""
EXTERNAL_BEFORE: Final = "gke.networking.io/l4-netlb-v1"
"""The finalizer of newer official managers on external Services."""
INTERNAL_ELSEWHERE: Final = "gke.networking.io/l4-ilb-v2"
"""The finalizer of the controller that gives internal Services a subset of nodes."""
EXTERNAL_ELSEWHERE: Final = ("gke.networking.io/l4-netlb-v2", "gke.networking.io/l4-netlb-v3")
"""The finalizers of the controller that gives external Services a backend service.

It puts one of them on a Service: the second one where the backends are groups of endpoints.
"""

INTERNAL_CLASS: Final = "networking.gke.io/l4-regional-internal"
"""The class of internal load balancers with a subset of the nodes."""
EXTERNAL_CLASS: Final = "networking.gke.io/l4-regional-external"
"""The class of external load balancers with a backend service."""

STANDARD: Final = "STANDARD"
PREMIUM: Final = "PREMIUM"

_TIERS: Final = {"Standard": STANDARD, "Premium": PREMIUM}
_SUBNET_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


_BY_OTHERS: Final = (
    f"the annotation {RBS} or the class {EXTERNAL_CLASS} leaves it to the controller of backend"
    " services: backend-services in [LoadBalancer] of the cloud-config makes it here"
)


_SUBSETS_BY_OTHERS: Final = (
    f"the class {INTERNAL_CLASS} leaves it to the controller of subsets: subsetting in"
    " [LoadBalancer] of the cloud-config makes it here"
)


class Options(msgspec.Struct, frozen=True):
    """The options of a load balancer that annotations choose.

    Attributes:
        internal: Whether only clients in the network reach it.
        tier: The network tier of an external load balancer.
        is_tier_given: Whether the annotation names the tier: only then a load balancer of another
            tier is replaced.
        shares_backend: Whether it shares a backend service with other internal load balancers of
            its kind.
        global_access: Whether clients in other regions reach an internal load balancer.
        subnet: The name of the subnetwork for the address of an internal load balancer, or for
            IPv6, or "".
        backend_service: Whether an external load balancer is to have a backend service in the place
            of a target pool.
    """

    internal: bool = False
    tier: str = PREMIUM
    is_tier_given: bool = False
    shares_backend: bool = False
    global_access: bool = False
    subnet: str = ""
    backend_service: bool = False


def is_internal(service: Service) -> bool:
    """Tell whether only the network is to reach a Service."""
    if service.spec.load_balancer_class == INTERNAL_CLASS:
        return True
    annotations = service.metadata.annotations
    return annotations.get(TYPE, annotations.get(OLD_TYPE, "")) in {"Internal", "internal"}


def asks_backend_service(service: Service) -> bool:
    """Tell whether an external Service asks for a backend service, by annotation or class."""
    is_asked = service.metadata.annotations.get(RBS) == "enabled"
    return is_asked or service.spec.load_balancer_class == EXTERNAL_CLASS


def may_have_subset(service: Service) -> bool:
    """Tell whether an internal Service without load balancer may get one with a subset of nodes.

    A Service that the official manager has begun to serve gets none, as the other controller has
    it.
    """
    is_asked = service.spec.load_balancer_class == INTERNAL_CLASS
    return is_asked or INTERNAL_BEFORE not in service.metadata.finalizers


def read_options(service: Service) -> Options:
    """Read what a Service asks by its annotations and its class.

    Raises:
        InvalidRequest: Annotations are wrong; names each of them, and the remedy.
    """
    annotations: Mapping[str, str] = service.metadata.annotations
    read = AnnotationReader(annotations, "networking.gke.io/")
    tier = read.parsed(TIER, _TIERS.__getitem__, "give Standard or Premium", PREMIUM)
    subnet = read.form(SUBNET, _SUBNET_NAME, "give the name of a subnetwork of the region")
    read.check()
    return Options(
        internal=is_internal(service),
        tier=tier,
        is_tier_given=TIER in annotations,
        shares_backend="true" in {annotations.get(SHARE), annotations.get(OLD_SHARE)},
        global_access=annotations.get(GLOBAL_ACCESS) == "true",
        subnet=subnet,
        backend_service=not is_internal(service) and asks_backend_service(service),
    )


def handled_elsewhere(
    service: Service,
    options: Options,
    *,
    has_rule: bool,
    subsets: bool,
    rbs_default: bool = False,
    backend_services: bool = False,
    subsetting: bool = False,
) -> str:
    """Return why another controller makes a Service's load balancer; "" if it is this one.

    Args:
        service: The Service.
        options: The options that its annotations choose.
        has_rule: Whether there is a forwarding rule as this provider makes it.
        subsets: Whether the cloud-config leaves new internal Services to another controller.
        rbs_default: Whether a flag gives new external Services a backend service.
        backend_services: Whether load balancers with a backend service are made by this manager.
        subsetting: Whether load balancers with a subset of the nodes are made by this manager.
    """
    finalizers = service.metadata.finalizers
    claims: tuple[tuple[bool, str], ...] = (
        (
            options.backend_service and not backend_services,
            _BY_OTHERS,
        ),
        *(
            (one in finalizers, f"the finalizer {one} says that another controller has it")
            for one in EXTERNAL_ELSEWHERE
        ),
        (
            rbs_default and not has_rule and not backend_services,
            "--enable-rbs-default-l4-netlb leaves new external Services to another controller",
        ),
    )
    if options.internal:
        is_new = not has_rule and INTERNAL_BEFORE not in finalizers
        is_asked = service.spec.load_balancer_class == INTERNAL_CLASS
        claims = (
            (is_asked and not subsetting, _SUBSETS_BY_OTHERS),
            (
                is_new and subsets,
                "alpha-features in [Global] leaves new internal Services to another controller",
            ),
            (
                is_new and INTERNAL_ELSEWHERE in finalizers,
                f"the finalizer {INTERNAL_ELSEWHERE} says that another controller has it",
            ),
        )
    return next((why for holds, why in claims if holds), "")
