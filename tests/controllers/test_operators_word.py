"""How long an operator's word that a machine is gone lasts, with a manager in virtual time."""

import asyncio
from datetime import timedelta
from typing import Any

from proreus.controllers.cloud_node_lifecycle.declared import ANNOTATION_GONE
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time

from .test_clock_jumps import Stage

CONTROLLER = "cloud-node-lifecycle-controller"


def node(ready: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "annotations": {ANNOTATION_GONE: "true"}},
        "spec": {"providerID": "cloud://a"},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


@virtual_time
async def test_a_node_that_stays_ready_loses_it_and_outlives_its_next_silence() -> None:
    stage = Stage(timedelta(), 0.0)
    stage.store.create(NODES, "", node("True"))

    def is_declared() -> bool:
        metadata = stage.store.get(NODES, "", "a").metadata
        return ANNOTATION_GONE in metadata.get("annotations", {})

    async with stage.manager(CONTROLLER):
        assert 60 <= await stage.lasts(is_declared) < 90
        silent = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        lives = stage.store.get(NODES, "", "a")
        stage.store.update(NODES, lives, {**lives.body, "status": silent}, status=True)
        await asyncio.sleep(900)  # the cloud says that there is no machine at all
        assert stage.store.count(NODES) == 1


@virtual_time
async def test_a_node_that_is_silent_goes() -> None:
    stage = Stage(timedelta(), 0.0)
    stage.store.create(NODES, "", node("Unknown"))
    async with stage.manager(CONTROLLER):
        assert 30 <= await stage.lasts(lambda: stage.store.count(NODES)) < 60
