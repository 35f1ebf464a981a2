"""The guide has exactly the keys, variables, privileges and calls that the code knows."""

import re

import pytest

from proreus.providers.vsphere import VSphereCloud, config, operations
from proreus.providers.vsphere.nsxt import config as nsxt
from proreus.providers.vsphere.nsxt.operations import KINDS

from ..guides import Guide, keys  # noqa: TID252 - pytest imports tests by path
from .site import Site, describe, node, started

GUIDE = Guide("vsphere")


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ('key in `[Global]` and `[VirtualCenter "x"]`', keys(config.Connection)),
        ("key in `[Global]` only", keys(config.Global)[len(keys(config.Connection)) :]),
        ("key in `[Labels]`", keys(config.Labels)),
        ("key in `[Nodes]`", keys(config.Nodes)),
        ("key in `[Client]`, of ours", keys(config.Client)),
        ("key in `[NSXT]`", keys(nsxt.Nsxt)),
        ("key in `[LoadBalancer]` only", keys(nsxt.LoadBalancerSection)[6:]),
        ('key in `[LoadBalancer]` and `[LoadBalancerClass "x"]`', keys(nsxt.ClassSection)),
        ("key in `[Route]`", keys(nsxt.Route)),
    ],
)
def test_the_tables_of_keys_have_those_that_are_read(header: str, known: list[str]) -> None:
    assert [row[0] for row in GUIDE.rows(header)] == known


def test_the_table_of_privileges_has_every_call() -> None:
    described = {row[0]: row[1] for row in GUIDE.rows("operation")}
    assert described == operations.SOAP | operations.REST


def test_the_table_of_nsxt_has_every_request() -> None:
    described = {row[0]: (row[1], tuple(row[2].split(", "))) for row in GUIDE.rows("objects")}
    assert described == {name: (kind.path, kind.methods) for name, kind in KINDS.items()}


def test_the_variables_are_named() -> None:
    named = set(re.findall(r"`((?:VSPHERE|NSXT)_[A-Z_]+)`", GUIDE.text))
    assert named == set(VSphereCloud.config_environment)


async def test_a_start_costs_the_calls_that_the_guide_says(vcenter: Site) -> None:
    async with started(vcenter.config()) as provider:
        assert vcenter.gateway.calls.total() == 6 + 1
        vcenter.gateway.calls.clear()
        unknown = node("x", "vsphere://00000000-0000-4000-8000-000000000001")
        await describe(provider, unknown)
        assert vcenter.gateway.calls.total() == 1 + 2 + 1 + 1  # nothing was ever seen of it
