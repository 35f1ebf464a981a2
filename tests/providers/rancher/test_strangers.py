"""The emulator is spoken to by a client that is not ours: `cattle`, Rancher's own for Python.

It learns types, fields and actions from what the server says of itself.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import cattle
import pytest
from gdapi import ApiError

from .emulator.server import Emulator
from .site import HTTP, NAME, lb_site

T = TypeVar("T")


async def told(emulator: Emulator, ask: Callable[[Any], T], *, project: str = "") -> T:
    """What `cattle` returns, by the newest version that the server has."""

    def run() -> T:
        url = f"{emulator.url}/{emulator.versions[-1]}{project}/schemas"
        return ask(cattle.Client(url=url, access_key=emulator.key, secret_key=emulator.secret))

    return await asyncio.to_thread(run)


def stack_of(client: Any) -> tuple[Any, str]:
    """A new stack, and the field that names it."""
    if "stack" in client.schema.types:
        return client.wait_success(client.create_stack(name="by-hand")), "stackId"
    return client.wait_success(client.create_environment(name="by-hand")), "environmentId"


async def test_cattle_lists_hosts_page_by_page_and_follows_their_links(emulator: Emulator) -> None:
    names = [f"node-{number}" for number in range(8)]
    emulator.world.add_hosts(names)

    def ask(client: Any) -> tuple[list[str], list[str]]:
        page = client.list_host(limit=3, removed_null=True)
        found = [one.hostname for one in page]
        first = next(iter(page)).ipAddresses()
        while getattr(page, "next", None) is not None:
            page = page.next()
            found += [one.hostname for one in page]
        return found, [one.address for one in first]

    assert await told(emulator, ask) == (names, ["10.42.0.2"])
    assert await told(emulator, ask, project="/projects/1a5") == (names, ["10.42.0.2"])


async def test_cattle_joins_addresses_with_hosts(emulator: Emulator) -> None:
    emulator.world.add_hosts(["node-1"], ips=2)
    (found,) = await told(emulator, lambda client: client.list_host(include="ipAddresses").data)
    assert [one.address for one in found.ipAddresses] == ["10.42.0.2", "10.43.0.2"]


async def test_cattle_makes_changes_and_removes_a_load_balancer(emulator: Emulator) -> None:
    emulator.world.add_hosts(["node-1"])
    is_new = "v2-beta" in emulator.versions

    def ask(client: Any) -> tuple[str, list[str], str]:
        stack, field = stack_of(client)
        of = {field: stack.id}
        external = client.create_externalService(
            name="node-1", externalIpAddresses=["10.42.0.1"], **of
        )
        external = client.wait_success(external)
        assert external.state == "inactive"
        client.wait_success(external.activate())
        rule = {"sourcePort": 80, "targetPort": 30080, "serviceId": external.id, "protocol": "tcp"}
        rules: dict[str, Any] = {"lbConfig": {"portRules": [rule]}} if is_new else {}
        ports = {"ports": ["80:80/tcp" if is_new else "80:30080/tcp"]}
        made = client.create_loadBalancerService(name="lb-1", launchConfig=ports, **rules, **of)
        made = client.wait_success(made)
        assert made.state == "inactive"
        made.setservicelinks(serviceLinks=[{"serviceId": external.id}])
        made = client.wait_success(client.reload(made).activate())
        led_to = [one.name for one in made.consumedservices()]
        address = made.publicEndpoints[0].ipAddress
        made = client.wait_success(client.update(made, description="changed"))
        client.wait_success(made.deactivate())
        client.delete(client.reload(made))
        return address, led_to, made.description

    assert await told(emulator, ask) == ("10.42.0.2", ["node-1"], "changed")
    emulator.world.advance()
    assert not emulator.world.of("loadBalancerService")


async def test_cattle_sees_what_the_provider_has_made(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired(HTTP))

    def ask(client: Any) -> tuple[str, int, str]:
        (one,) = client.list_loadBalancerService(name=NAME)
        return one.state, len(one.consumedservices().data), one.transitioning

    assert await told(emulator, ask) == ("active", 2, "no")


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({}, "MissingRequired", "name"),
        ({"name": "under_score"}, "InvalidCharacters", "name"),
        ({"name": "n" * 64}, "MaxLengthExceeded", "name"),
        ({"name": "a--b"}, "InvalidCharacters", "name"),
        (
            {"name": "a", "externalIpAddresses": ["10.0.0.1"], "hostname": "h"},
            "InvalidOption",
            "externalIps and hostname are mutually exclusive",
        ),
    ],
)
async def test_cattle_is_told_errors_as_rancher_tells_them(
    emulator: Emulator, fields: dict[str, Any], code: str, field: str
) -> None:
    def ask(client: Any) -> Any:
        stack, of = stack_of(client)
        with pytest.raises(ApiError) as refused:
            client.create_externalService(**{of: stack.id}, **fields)
        return refused.value.error

    error = await told(emulator, ask)
    assert (error.status, error.code, error.fieldName) == (422, code, field)


async def test_cattle_is_told_what_a_state_forbids(emulator: Emulator) -> None:
    emulator.world.works = 30.0

    def ask(client: Any) -> tuple[Any, Any]:
        field = "stackId" if "stack" in client.schema.types else "environmentId"
        stack = client.create("stack" if field == "stackId" else "environment", name="by-hand")
        made = client.create_externalService(name="a", **{field: stack.id})
        assert not hasattr(made, "activate")
        made.actions.activate = f"{made.links.self}/?action=activate"
        with pytest.raises(ApiError) as early:
            client.action(made, "activate")
        with pytest.raises(ApiError) as busy:
            client.update(made, description="changed")
        return early.value.error, busy.value.error

    early, busy = await told(emulator, ask)
    assert (early.status, early.code) == (422, "ActionNotAvailable")
    assert busy.status == 409


async def test_wrong_keys_of_cattle_are_refused(emulator: Emulator) -> None:
    good, emulator.secret = emulator.secret, "another"
    with pytest.raises(ApiError) as refused:
        await asyncio.to_thread(
            cattle.Client, url=f"{emulator.url}/v1", access_key=emulator.key, secret_key=good
        )
    assert refused.value.error.status == 401
