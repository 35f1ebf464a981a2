"""Clusters that share a security group: what a Service had there once may be the other one's now."""

import pytest

from proreus.cloudprovider import InvalidRequest

from .balancing import answers, ensure, everything, machines, public_ip, service
from .emulator.server import Emulator
from .site import started
from .test_additional import ADDITIONAL, HTTPS, known, open_ports
from .test_shared_group import RANGES, other_service, showing


async def test_an_additional_address_that_was_left_out_is_not_its_service_s_again(
    azure: Emulator,
) -> None:
    """Its ports would be closed there for the clients that the other cluster lets in."""
    nodes, address = machines(azure, 4), public_ip(azure, "kept")
    one = service(2, {ADDITIONAL: address}, HTTPS, **RANGES)
    async with started(azure, known(nodes[:2], [one])) as provider:
        ips = (await ensure(provider, nodes[:2], one))["web-2"]
        assert open_ports(azure, address) == {"443"}
        without = showing(service(2, {}, HTTPS, **RANGES), ips)
        assert (await ensure(provider, nodes[:2], without))["web-2"] == ips[:1]
        assert open_ports(azure, address) == set()
        theirs = service(7, {"azure-pip-name": "kept"}, HTTPS)
        assert await other_service(azure, nodes[2:], theirs) == address
        before = everything(azure)
        found = (await answers(provider, nodes[:2], showing(one, ips[:1])))["web-2"]
        assert isinstance(found, InvalidRequest), found
        assert "for somebody else" in str(found)
        assert everything(azure) == before


@pytest.mark.parametrize("number", [2, 3], ids=["the Service itself", "one beside it"])
async def test_no_service_names_a_former_address_that_another_cluster_has_by_now(
    azure: Emulator, number: int
) -> None:
    """A status may show it for a while, such as to a new leader."""
    nodes, address = machines(azure, 4), public_ip(azure, "kept")
    public_ip(azure, "next")
    one = service(2, {"azure-pip-name": "kept"}, HTTPS, **RANGES)
    async with started(azure, known(nodes[:2], [one])) as provider:
        ips = (await ensure(provider, nodes[:2], one))["web-2"]
        moved = service(2, {"azure-pip-name": "next"}, HTTPS, **RANGES)
        await ensure(provider, nodes[:2], showing(moved, ips))
    theirs = service(7, {"azure-pip-name": "kept"}, HTTPS)
    assert await other_service(azure, nodes[2:], theirs) == address
    named = {"azure-pip-name": "next", ADDITIONAL: address}
    edited = showing(service(2, named, HTTPS, **RANGES), ips)
    beside = service(3, {ADDITIONAL: address}, HTTPS, **RANGES)
    before = everything(azure)
    async with started(azure, known(nodes[:2], [edited, beside])) as provider:
        asked = edited if number == 2 else beside
        found = (await answers(provider, nodes[:2], asked))[asked.metadata.name]
        assert isinstance(found, InvalidRequest), found
        assert "for somebody else" in str(found)
    assert everything(azure) == before


async def test_an_address_of_the_other_family_goes_on_being_its_service_s(azure: Emulator) -> None:
    """It is the first one of its family in the status, and none of the load balancer's."""
    nodes, address = machines(azure), "2a01:111::9"
    one = service(2, {ADDITIONAL: address})
    async with started(azure, known(nodes, [one])) as provider:
        ips = (await ensure(provider, nodes, one))["web-2"]
    one = showing(one, ips)
    async with started(azure, known(nodes, [one])) as provider:
        assert (await ensure(provider, nodes, one))["web-2"] == ips
        beside = service(3, {ADDITIONAL: address}, HTTPS)
        assert address in (await ensure(provider, nodes, beside))["web-3"]
    assert open_ports(azure, address) == {"80", "443"}
