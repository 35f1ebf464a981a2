"""The emulated engine understands its search language as the guide of the API describes it."""

import pytest

from .emulator.search import search
from .emulator.world import World


@pytest.fixture
def world() -> World:
    made = World()
    made.parents = {"workers": "kubernetes", "old workers": "workers"}
    south = made.add_center("south")
    rack = made.add_cluster("rack-2", south)
    made.add_vms(["web-1"], tags=["workers"], description="first of all")
    made.add_vms(["web-2"], tags=["old workers"], cluster=rack, memory=8 << 30)
    made.add_vms(["Web-3"], tags=["kubernetes"], status="powering_up")
    made.add_vms(["db_1"], tags=["desktops"], comment="do not touch", fqdn="db.example.org")
    return made


ALL = ["Web-3", "db_1", "web-1", "web-2"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ALL),
        ("name=web-1", ["web-1"]),
        ("name = web*", ["Web-3", "web-1", "web-2"]),
        ("name=db?1", []),
        ('description="first of all"', ["web-1"]),
        ("tag=kubernetes", ["Web-3", "web-1", "web-2"]),
        ("tag=workers", ["web-1", "web-2"]),
        ('tag="old*"', ["web-2"]),
        ("tag=nothing", []),
        ("status=poweringup", ["Web-3"]),
        ("status!=up", ["Web-3"]),
        ("cluster=rack-2", ["web-2"]),
        ("datacenter=south or fqdn=db.*", ["db_1", "web-2"]),
        ("name=web* and status=up", ["web-1", "web-2"]),
        ("name=web* status=up", ["web-1", "web-2"]),
        ("name=db* or name=web* and datacenter=north", ["Web-3", "db_1", "web-1"]),
        ("memory>5000", ["web-2"]),
        ("ip=10.0.0.2", ["web-1"]),
        ("touch", ["db_1"]),
        ("sortby name desc", ALL[::-1]),
        ("name=web* sortby name asc page 1", ["Web-3", "web-1", "web-2"]),
        # Statuses of the API, unknown fields and what else cannot be read find nothing.
        ("status=powering_up", []),
        ("colour=blue", []),
        ("name=web* and", []),
        ("or name=web*", []),
        ("memory=much", []),
        ("name<web", []),
        ("page 1 name=web*", []),
        ("sortby colour", []),
        ("sortby name asc name=web*", []),
        ("page two", []),
        ('name="web', []),
    ],
)
def test_what_is_found(world: World, text: str, found: list[str]) -> None:
    assert [vm.name for vm in search(world, text, None)] == found


def test_ids_find_what_has_them(world: World) -> None:
    one, two, *_ = world.vms
    text = f"id={one} or id={two} or id=2e8c1f0a-0000-4000-8000-000000000000"
    assert {vm.id for vm in search(world, text, 200)} == {one, two}


def test_pages_are_as_long_as_max_says(world: World) -> None:
    pages = [[vm.name for vm in search(world, f"sortby name asc page {n}", 3)] for n in (1, 2, 3)]
    assert pages == [ALL[:3], ALL[3:], []]
    assert search(world, "page 2", None) == []


def test_case_counts_only_where_it_is_wanted(world: World) -> None:
    assert len(search(world, "name=WEB*", None)) == 3
    assert [vm.name for vm in search(world, "name=Web*", None, case_sensitive=True)] == ["Web-3"]
