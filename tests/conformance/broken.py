"""Deliberately broken copies of the provider `simulated`."""

from typing import TYPE_CHECKING

from proreus.providers.simulated import SimulatedCloud
from proreus.providers.simulated.api import Api
from proreus.providers.simulated.instances import SimulatedInstances
from proreus.providers.simulated.load_balancers import SimulatedLoadBalancers
from proreus.providers.simulated.routes import SimulatedRoutes
from proreus.testing.conformance import RULES, Rule, Status, Suite

from .simulated_fixture import SimulatedFixture

if TYPE_CHECKING:
    from proreus.cloudprovider import Context


class Copy(SimulatedCloud):
    """The provider, made of parts of which one is broken.

    One with broken machines has nothing else, so that no time goes into rules about other things.
    """

    only_machines = False
    instances_type = SimulatedInstances
    load_balancers_type = SimulatedLoadBalancers
    routes_type = SimulatedRoutes
    api_type = Api

    async def start(self, context: "Context") -> None:
        settings = self._settings
        api = self.closing(self.api_type(settings, settings.read_token(), context))
        self.instances = self.instances_type(api, settings.region, settings.batch_size)
        if self.only_machines:
            return
        self.load_balancers = self.load_balancers_type(api, settings.region)
        self.routes = self.routes_type(api, settings.region)


def copy(part: type) -> type[SimulatedCloud]:
    """The provider with that part, or that provider itself."""
    if issubclass(part, SimulatedCloud):
        return part
    for name in ("instances_type", "load_balancers_type", "routes_type", "api_type"):
        if issubclass(part, getattr(Copy, name)):
            only_machines = issubclass(part, SimulatedInstances)
            return type("Broken", (Copy,), {name: part, "only_machines": only_machines})
    raise TypeError(part)


async def failures(part: type, *rules: Rule) -> dict[str, str]:
    """The rules that fail for the copy, with what was seen: of these, or of all."""
    provider = copy(part)
    lacks = ("load_balancers", "routes") if getattr(provider, "only_machines", False) else ()
    fixture = type("Fixture", (SimulatedFixture,), {"provider_class": provider, "lacks": lacks})
    findings = await Suite(fixture).findings(rules or RULES)
    return {one.rule.id: one.seen for one in findings if one.status is Status.FAILS}


async def fails(part: type, rule: str) -> bool:
    """Whether the copy fails that rule, tried with no other but those that it needs."""
    (mine,) = (one for one in RULES if one.id == rule)
    return rule in await failures(part, mine)
