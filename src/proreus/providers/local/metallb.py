"""Read MetalLB's objects of the kind `IPAddressPool` as pools. Pure.

What `kubectl get ipaddresspools --namespace=metallb-system --output=yaml` prints is taken as it is:
a `List` of them, or one by itself, or several of either in a list.

https://metallb.io/apis/#ipaddresspool and, for the order,
https://metallb.io/configuration/_advanced_ipaddresspool_configuration/
"""

import ipaddress
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.selectors import Selector
from proreus.providers.local.addresses import AddressRange, Pool, parse_range

API_VERSION: Final = "metallb.io/v1beta1"
"""The API version of MetalLB's pools."""
KIND: Final = "IPAddressPool"
"""The kind of MetalLB's pools."""

_LISTS: Final = frozenset({("v1", "List"), (API_VERSION, f"{KIND}List")})


class ServiceAllocation(ConfigSection, frozen=True, kw_only=True, rename="camel"):
    """The Services that a pool is kept for: those of its namespaces that its selectors match.

    Attributes:
        priority: Which of several such pools comes first: the one with the lowest number. 0: the
            last one.
        namespaces: Namespaces by their names.
        namespace_selectors: Namespaces by their labels, besides those that are named.
        service_selectors: Services by their labels; one of several is enough.
    """

    priority: int = 0
    namespaces: tuple[str, ...] = ()
    namespace_selectors: tuple[Selector, ...] = ()
    service_selectors: tuple[Selector, ...] = ()


class PoolSpec(ConfigSection, frozen=True, kw_only=True, rename="camel"):
    """The `spec` of an `IPAddressPool`.

    Attributes:
        addresses: CIDRs, of which the bits of the host do not matter, and ranges.
        auto_assign: Whether Services get addresses of it that do not name the pool or address.
        avoid_buggy_ips: Whether to leave out IPv4 addresses that end in .0 or .255.
        service_allocation: Which Services it is kept for. None: it is for all.
    """

    addresses: tuple[str, ...] = ()
    auto_assign: bool = True
    avoid_buggy_ips: bool = msgspec.field(name="avoidBuggyIPs", default=False)
    service_allocation: ServiceAllocation | None = None


class IPAddressPool(ConfigSection, frozen=True, kw_only=True, rename="camel"):
    """An object of MetalLB's kind of this name, as the API server has it.

    Attributes:
        api_version: `metallb.io/v1beta1`.
        kind: `IPAddressPool`.
        metadata: Its name, and what does not matter here.
        spec: The pool.
        status: What does not matter here.
    """

    api_version: str = ""
    kind: str = ""
    metadata: Any = None
    spec: PoolSpec | None = None
    status: Any = None

    def problems(self) -> Iterator[str]:
        """Report what MetalLB would not take."""
        who = f"{self.name} " if self.name else ""
        if (self.api_version, self.kind) != (API_VERSION, KIND):
            yield (
                f"{who}apiVersion, kind: {self.api_version!r}, {self.kind!r} must be"
                f" {API_VERSION}, {KIND}"
            )
            return
        if not self.name:
            yield "metadata.name: give the pool's name"
        if self.spec is None or not self.spec.addresses:
            yield f"{who}spec.addresses: give a CIDR such as 192.0.2.0/27"
            return
        for text in self.spec.addresses:
            try:
                _range(text)
            except ValueError as error:
                yield f"{who}spec.addresses: {error}"

    @property
    def name(self) -> str:
        """The pool's name, or ""."""
        found = self.metadata.get("name") if isinstance(self.metadata, Mapping) else None
        return found if isinstance(found, str) else ""


class Manifest(IPAddressPool, frozen=True, kw_only=True, rename="camel"):
    """What kubectl prints: an `IPAddressPool`, or a `List` with `items`."""

    items: tuple[IPAddressPool, ...] = ()

    def problems(self) -> Iterator[str]:
        """Report what is wrong with the one pool, or with the list."""
        if not self._is_list:
            yield from super().problems()
            if self.items:
                yield "items: take them out, or give the kind List"
        elif self.spec is not None:
            yield "spec: a list has none, but items"

    @property
    def pools(self) -> tuple[IPAddressPool, ...]:
        """The pools in it, as written."""
        return self.items if self._is_list else (self,)

    @property
    def _is_list(self) -> bool:
        return (self.api_version, self.kind) in _LISTS


def pools_in(manifests: Iterable[Manifest]) -> tuple[Pool, ...]:
    """Return the pools in the order in which MetalLB tries them for a Service.

    Pools that are kept for some Services come before those for all, by priority. Among equals
    MetalLB's choice is random: here those by namespace come first, else the order is as written.
    """
    every = [one for manifest in manifests for one in manifest.pools]
    return tuple(_pool(one) for one in sorted(every, key=_rank))


def repeated(names: Sequence[str]) -> list[str]:
    """Return each name that is there twice or more, once."""
    return sorted({one for one in names if names.count(one) > 1})


def _rank(one: IPAddressPool) -> tuple[bool, float, bool]:
    kept = one.spec.service_allocation if one.spec is not None else None
    if kept is None:
        return True, 0, False
    by_namespace = bool(kept.namespaces or kept.namespace_selectors)
    return False, kept.priority if kept.priority > 0 else math.inf, not by_namespace


def _pool(one: IPAddressPool) -> Pool:
    spec = one.spec or PoolSpec()
    kept = spec.service_allocation or ServiceAllocation()
    return Pool(
        name=one.name,
        ranges=tuple(_range(text) for text in spec.addresses),
        auto_assign=spec.auto_assign,
        avoid_buggy_ips=spec.avoid_buggy_ips,
        namespaces=frozenset(kept.namespaces),
        namespace_selectors=kept.namespace_selectors,
        service_selectors=kept.service_selectors,
        share_across_namespaces=True,
    )


def _range(text: str) -> AddressRange:
    """Parse a range as MetalLB does, which takes 192.0.2.1/24 for 192.0.2.0/24.

    Raises:
        ValueError: It is none, or holds what no load balancer can have; with the remedy.
    """
    if "/" in text and "-" not in text:
        try:
            text = str(ipaddress.ip_network(text, strict=False))
        except ValueError:
            return parse_range(text)  # which says what is wrong
    return parse_range(text)
