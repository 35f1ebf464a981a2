"""Define the keys of the cloud-config about several load balancers. Pure.

https://cloud-provider-azure.sigs.k8s.io/topics/multislb/
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.selectors import Selector, reads_namespaces


def _rename(field: str) -> str:
    first, *rest = field.strip("_").split("_")
    return first + "".join("VM" if word == "vm" else word.capitalize() for word in rest)


class Configuration(ConfigSection, frozen=True, kw_only=True, rename=_rename):
    """An entry of `multipleStandardLoadBalancerConfigurations`.

    Attributes:
        name: The name of the public load balancer; the internal one's ends with `-internal`.
        allow_service_placement: Whether new Services may come to it.
        primary_vm_set: The scale set or availability set whose nodes are always behind it.
        service_label_selector: The labels of Services that may come to it; None: those that no
            other configuration selects.
        service_namespace_selector: Which Services may be on it, by the labels of their namespaces.
        node_selector: The labels of nodes that come to it rather than to others.
    """

    ignore_unknown: ClassVar[bool] = True

    name: str
    allow_service_placement: bool = True
    primary_vm_set: str = ""
    service_label_selector: Selector | None = None
    service_namespace_selector: Selector | None = None
    node_selector: Selector | None = None
    active_services_: Any = None
    active_nodes_: Any = None

    def problems(self) -> Iterator[str]:
        """Report what is missing."""
        if not self.name:
            yield "name: give the load balancer's name"
        if not self.primary_vm_set:
            yield "primaryVMSet: give the scale set whose nodes are always this load balancer's"

    @property
    def reads_namespaces(self) -> bool:
        """Whether it selects Services by labels of their namespaces other than the name."""
        spaces = self.service_namespace_selector
        return spaces is not None and reads_namespaces(spaces)


def several_problems(found: tuple[Configuration, ...]) -> Iterator[str]:
    """Report what is wrong with all entries together."""
    key = "multipleStandardLoadBalancerConfigurations"
    names = [f"{one.name}{end}".lower() for one in found for end in ("", "-internal")]
    for name in sorted({one for one in names if names.count(one) > 1}):
        yield f"{key}: {name} would be the name of two load balancers"
    sets = [one.primary_vm_set.lower() for one in found if one.primary_vm_set]
    for set_ in sorted({one for one in sets if sets.count(one) > 1}):
        yield f"{key}: primaryVMSet {set_} is given twice"
