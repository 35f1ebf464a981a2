"""The resources of a subscription, by their ids in small letters."""

import copy
import ipaddress
import itertools
import uuid
from collections.abc import Iterator
from typing import Any

from .errors import invalid
from .views import computed

Resource = dict[str, Any]

SUBSCRIPTION = "0b1f6471-1bf0-4dda-aec3-cb9272f09590"
GROUP = "Cluster"
LOCATION = "westeurope"
ROOT = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers"


def network(kind: str, name: str) -> str:
    return f"{ROOT}/Microsoft.Network/{kind}/{name}"


def compute(kind: str, name: str) -> str:
    return f"{ROOT}/Microsoft.Compute/{kind}/{name}"


class Store:
    """Resources as they are, and the addresses that are given out."""

    def __init__(self) -> None:
        self.of: dict[str, Resource] = {}
        self.groups: set[str] = {GROUP.lower()}
        self._numbers = itertools.count(1)

    def get(self, id_: str) -> Resource | None:
        return self.of.get(id_.lower())

    def need(self, id_: str, by: str) -> Resource:
        """A resource that another one names."""
        found = self.of.get(id_.lower())
        if found is None:
            raise invalid(
                "InvalidResourceReference",
                f"Resource {id_} referenced by resource {by} was not found.",
            )
        return found

    def put(self, resource: Resource) -> Resource:
        id_ = str(resource["id"]).lower()
        resource["etag"] = f'W/"{uuid.uuid4()}"'
        self.of[id_] = resource
        return resource

    def delete(self, id_: str) -> None:
        del self.of[id_.lower()]

    def kind(self, kind: str) -> Iterator[Resource]:
        """All resources of a type such as Microsoft.Network/loadBalancers."""
        for one in list(self.of.values()):
            if str(one["type"]).lower() == kind.lower():
                yield one

    def below(self, prefix: str) -> list[Resource]:
        """What is directly below a collection."""
        start = prefix.lower().rstrip("/") + "/"
        return [
            one
            for id_, one in sorted(self.of.items())
            if id_.startswith(start) and "/" not in id_[len(start) :]
        ]

    def next_address(self, version: str) -> str:
        number = next(self._numbers)
        if version == "IPv6":
            return str(ipaddress.ip_address("2001:db8:ff::") + number)
        return str(ipaddress.ip_address("20.50.0.0") + number)

    def private_address(
        self, subnet: Resource, version: str, wanted: str, owner: str, given: set[str] | None = None
    ) -> str:
        """Give out a private address, or the one that is wanted."""
        prefixes = subnet["properties"].get("addressPrefixes") or [
            subnet["properties"]["addressPrefix"]
        ]
        number = 6 if version == "IPv6" else 4
        net = next((n for p in prefixes if (n := ipaddress.ip_network(p)).version == number), None)
        if net is None:
            raise invalid("SubnetDoesNotHaveFamily", f"{subnet['id']} has no {version} prefix.")
        taken = dict(self._private_addresses()) | dict.fromkeys(given or (), "this request")
        if wanted:
            if ipaddress.ip_address(wanted) not in net:
                raise invalid(
                    "PrivateIPAddressNotInSubnet",
                    f"Private static IP address {wanted} does not belong to the range of subnet"
                    f" prefix {net}.",
                )
            if taken.get(wanted, owner) != owner:
                raise invalid("PrivateIPAddressInUse", f"IP address {wanted} is already allocated.")
            return wanted
        # Azure keeps the first four of a subnet for itself.
        return next(
            str(one) for one in itertools.islice(net.hosts(), 3, None) if str(one) not in taken
        )

    def availability(self, net: str, address: str) -> Resource:
        """Whether nothing has a private address of a network."""
        found = ipaddress.ip_address(address)
        prefixes = [
            ipaddress.ip_network(prefix)
            for subnet in self.below(f"{net}/subnets")
            for prefix in subnet["properties"]["addressPrefixes"]
        ]
        if not any(found in one for one in prefixes):
            text = f"Private static IP address {address} does not belong to the range of any subnet"
            raise invalid("PrivateIPAddressNotInAnySubnet", text)
        is_free = address not in dict(self._private_addresses())
        return {"available": is_free, "availableIPAddresses": [], "isPlatformReserved": False}

    def _private_addresses(self) -> Iterator[tuple[str, str]]:
        for one in self.of.values():
            properties = one["properties"]
            for field in ("ipConfigurations", "frontendIPConfigurations"):
                for configuration in properties.get(field) or ():
                    address = configuration["properties"].get("privateIPAddress")
                    if address:
                        yield address, str(configuration["id"]).lower()

    def shown(self, resource: Resource) -> Resource:
        """A copy with what Azure computes from other resources."""
        return computed(self, copy.deepcopy(resource))
