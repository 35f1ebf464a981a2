"""The conformance suite on the provider `azure`."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.providers.azure import AzureCloud
from proreus.testing.conformance import Answer, CloudFixture, Conformance

from .emulator import seed
from .emulator.kinds import filled
from .emulator.server import Emulator
from .emulator.store import network
from .site import config, emulated

PARTS = (
    "frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes",
    "securityRules",
)  # fmt: skip
_QUOTA = b'{"error": {"code": "SubscriptionRequestsThrottled", "message": "Too many requests."}}'


class AzureFixture(CloudFixture):
    """The emulator with one scale set and machines of their own by turns."""

    page_size = 5
    timeout = 60.0
    patience = 60.0
    marks_routes = False
    throttled = Answer(429, _QUOTA, {"Retry-After": "120"})
    lacks = frozenset({"groups", "fingerprint"})

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self.azure: Emulator = await self._stack.enter_async_context(emulated())
        self.azure.page = self.page_size
        self.endpoint = self.azure.url
        self._ids: dict[str, str] = {}
        self._number = 0
        seed.scale_set(self.azure.store, "pool")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def provider(self, endpoint: str) -> CloudProvider:
        provider = AzureCloud(config(endpoint))
        provider.timeout = self.timeout  # type: ignore[misc]
        return provider

    async def create_machines(self, names: Sequence[str]) -> None:
        for name in names:
            self._ids[name] = seed.machine(self.azure.store, name)

    async def remove_machine(self, name: str) -> None:
        seed.remove_machine(self.azure.store, self._ids.pop(name))

    async def stop_machine(self, name: str) -> None:
        machine = self.azure.store.of[self._ids[name].lower()]
        machine["properties"]["instanceView"] = seed.view("deallocated")

    async def objects(self) -> Mapping[str, object]:
        """Single parts, and load balancers without what all of them share."""
        found: dict[str, object] = {}
        store = self.azure.store
        for kind in ("loadBalancers", "publicIPAddresses", "networkSecurityGroups"):
            for one in store.kind(f"Microsoft.Network/{kind}"):
                properties = dict(one["properties"])
                for field in PARTS:
                    for part in properties.pop(field, ()):
                        found[part["id"]] = part["properties"]
                found[one["id"]] = one.get("tags"), properties
        return found

    async def remove_object(self, id_: str) -> None:
        """With what names it, or Azure would refuse."""
        store = self.azure.store
        for one in list(store.of.values()):
            properties = one["properties"]
            for field in PARTS:
                if field in properties:
                    properties[field] = [
                        part
                        for part in properties[field]
                        if id_ != part["id"] and id_ not in repr(part["properties"])
                    ]
            if (
                one["type"].endswith("/loadBalancers")
                and not properties["frontendIPConfigurations"]
            ):
                store.delete(one["id"])
            for configuration in properties.get("ipConfigurations") or ():
                pools = configuration["properties"].get("loadBalancerBackendAddressPools") or ()
                configuration["properties"]["loadBalancerBackendAddressPools"] = [
                    pool for pool in pools if not pool["id"].lower().startswith(id_.lower())
                ]
        if store.get(id_) is not None:
            store.delete(id_)

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        """A public address of the Service's name without a mark, and a frontend of another UID."""
        store = self.azure.store
        name = f"{ref.cluster.name}-{ref.name}"
        given = {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}
        for one in (name, "foreign"):
            id_ = network("publicIPAddresses", one)
            kind = "Microsoft.Network/publicIPAddresses"
            resource = seed.resource(kind, id_, dict(given), sku={"name": "Standard"})
            store.put(filled(store, resource, None))
        id_ = network("loadBalancers", ref.cluster.name)
        frontend = {
            "name": "a" + "0" * 31,
            "properties": {"publicIPAddress": {"id": network("publicIPAddresses", "foreign")}},
        }
        kind = "Microsoft.Network/loadBalancers"
        balancer = seed.resource(
            kind, id_, {"frontendIPConfigurations": [frontend]}, sku={"name": "Standard"}
        )
        store.put(filled(store, balancer, None))


class TestAzure(Conformance):
    fixture = AzureFixture
