"""Who edits a Service all the time cannot keep an address by that."""

import asyncio
from typing import Any

from proreus.kube.requests import SERVICES, Resource
from proreus.testing.clock import virtual_time
from proreus.testing.memory import Store
from proreus.testing.memory.store import Stored

from .test_contested_ports import ADDRESS, Stage


class Edited(Store):
    """A store in which a tenant edits a Service right before each write of the manager."""

    edited = ""
    edits = 0

    def get(self, resource: Resource[Any], namespace: str, name: str) -> Stored:
        found = super().get(resource, namespace, name)
        if resource is not SERVICES or namespace != self.edited:
            return found
        self.edits += 1
        meta = {**found.metadata, "annotations": {"edit": str(self.edits)}}
        return self.update(SERVICES, found, {**found.body, "metadata": meta})


def staged() -> tuple[Stage, Edited]:
    stage = Stage(Edited)
    assert isinstance(stage.store, Edited)
    return stage, stage.store


@virtual_time
async def test_who_asks_for_a_port_of_another_one_loses_the_address_whatever_is_edited() -> None:
    """Each edit makes another version, and what was made from the last one is not written."""
    stage, store = staged()
    async with stage.managed():
        stage.edit("bank", 80, {})
        store.edited = "bank"
        await asyncio.sleep(5)
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]
        store.edited = ""


@virtual_time
async def test_who_moves_to_another_address_shows_the_former_one_no_more_whatever_is_edited() -> (
    None
):
    stage, store = staged()
    async with stage.managed():
        stage.balancers.others["bank"] = "192.0.2.2"
        store.edited = "bank"
        stage.edit("bank", 443, {"a": "b"})
        await asyncio.sleep(5)
        assert stage.shown("bank") == ["192.0.2.2"]
        store.edited = ""


@virtual_time
async def test_who_is_deleted_and_held_by_its_owner_shows_no_address_whatever_is_edited() -> None:
    stage, store = staged()
    async with stage.managed():
        stage.delete_held("bank")
        store.edited = "bank"
        await asyncio.sleep(5)
        assert stage.shown("bank") == []
        store.edited = ""
