"""Bad providers in a real manager on a real API server: it lives on, and nobody else is harmed."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from .bad_site import BadSite, bad_site

MakeSite = Callable[..., AbstractAsyncContextManager[BadSite]]
NODES_ONLY = "--controllers=cloud-node"
SERVICES_ONLY = "--controllers=service"


@pytest.fixture
def make(control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSite:
    return lambda *deeds, flags=(), **config: bad_site(
        control_plane, tmp_path, monkeypatch, deeds, *flags, **config
    )


async def test_a_bad_answer_about_a_node_is_reported_on_it_and_the_others_are_initialised(
    make: MakeSite,
) -> None:
    deeds = {
        "raises": ("raise", "raised"),
        "exits": ("exit", "raised"),
        "interrupts": ("interrupt", "raised"),
        "groups": ("group", "raised"),
        "cancels": ("cancel", "cancelled"),
        "says-none": ("answer_none", "wrong_answer"),
        "is-hollow": ("answer_hollow", "wrong_answer"),
        "is-left-out": ("left_out", "left_out"),
    }
    lines = [f"describe {name} {deed}" for name, (deed, _) in deeds.items()]
    async with make(*lines, "describe good-1 unasked", flags=[NODES_ONLY]) as site:
        await site.add_nodes("good-1", *deeds, "good-2")

        await site.base.initialised("good-1", "good-2")
        for name, (_, kind) in deeds.items():
            said = await site.base.cloud_condition(name, "CloudUnavailable")
            assert "describe" in said.message
            assert kind == "cancelled" or "bad_provider.BadInstances.describe" in said.message
            await site.counted("describe", kind)
        await site.counted("describe", "unasked")
        assert site.manager.is_running


async def test_two_nodes_for_one_machine_are_reported(make: MakeSite) -> None:
    async with make(
        "describe twin-1 duplicate", "describe twin-2 duplicate", flags=[NODES_ONLY]
    ) as site:
        await site.add_nodes("twin-1", "twin-2", "good")
        await site.base.initialised("good")
        await site.counted("describe", "duplicate")
        conflicts = await site.base.event("IdentityConflict", "twin-2")
        assert "bad://same" in conflicts.message


async def test_nodes_are_initialised_by_a_provider_whose_hooks_fail(make: MakeSite) -> None:
    async with make(
        "owns node-1 exit", "owns node-2 none", "batch_size * raise", flags=[NODES_ONLY]
    ) as site:
        await site.add_nodes("node-1", "node-2", "good")
        await site.base.initialised("node-1", "node-2", "good")
        for name, kind in (("node-1", "raised"), ("node-2", "wrong_answer")):
            await site.counted("owns", kind)
            await site.base.event("ProviderFault", name)
        await site.counted("batch_size", "raised")


async def test_a_bad_verb_is_reported_on_its_service_and_the_others_are_ready(
    make: MakeSite,
) -> None:
    deeds = {
        "raises": ("ensure raises raise", "ensure", "raised"),
        "exits": ("ensure exits exit", "ensure", "raised"),
        "groups": ("ensure groups group", "ensure", "raised"),
        "cancels": ("ensure cancels cancel", "ensure", "cancelled"),
        "says-none": ("ensure says-none none", "ensure", "wrong_answer"),
        "is-nan": ("ensure is-nan answer_nan", "ensure", "wrong_answer"),
        "is-left-out": ("ensure is-left-out left_out", "ensure", "left_out"),
        "no-group": ("group no-group exit", "group", "raised"),
        "no-policy": ("host_policy no-policy interrupt", "host_policy", "raised"),
    }
    others = ["ensure hangs hang", "ensure deaf deaf", "list_owned * none",
              "ensure tasks exit_in_a_task", "ensure good-1 unasked"]  # fmt: skip
    lines = [line for line, _, _ in deeds.values()]
    async with make(*lines, *others, flags=[SERVICES_ONLY]) as site:
        await site.add_services("hangs", "deaf", "good-1", *deeds, "tasks", "good-2")

        for name in ("good-1", "good-2", "tasks"):
            await site.said(name, "NoHosts")
        for name, (_, verb, kind) in deeds.items():
            part = "no answer" if kind == "left_out" else verb
            await site.said(name, "CloudError", part=part)
            await site.counted(verb, kind)
        for verb, kind in (("ensure", "unasked"), ("task", "raised")):
            await site.counted(verb, kind)
        assert (await site.base.event("SyncLoadBalancerFailed", "exits")).type == "Warning"
        await site.base.event("ProviderFault", "no-group")
        assert site.manager.is_running
        await site.delete_service("good-1")
        await site.gone("good-1")


async def test_a_service_whose_deletion_goes_wrong_keeps_its_finalizer(make: MakeSite) -> None:
    async with make("delete web exit once", "delete other number", flags=[SERVICES_ONLY]) as site:
        await site.add_services("web", "other")
        for name in ("web", "other"):
            await site.said(name, "NoHosts")
            await site.delete_service(name)
        await site.said("other", "DeleteCloudError", part="int")
        await site.gone("web")


async def test_the_code_that_blocks_the_event_loop_is_named(make: MakeSite) -> None:
    async with make("ensure web block once", flags=[SERVICES_ONLY]) as site:
        await site.add_services("web", "good")
        await site.said("good", "NoHosts")
        await site.said("web", "NoHosts")
        await site.logged("The event loop was blocked")
        blocked = [line for line in site.manager.output().splitlines() if "loop is blocked" in line]
        assert any("hold_the_event_loop (bad_provider.py:" in line for line in blocked)
        metrics = await site.get("/metrics")
        (value,) = (
            float(line.split()[1])
            for line in metrics.splitlines()
            if line.startswith("proreus_event_loop_blocked_seconds_total ")
        )
        assert value >= 1


@pytest.mark.parametrize("deed", ["exit", "raise", "cancel"])
async def test_a_provider_that_fails_to_start_is_started_again(make: MakeSite, deed: str) -> None:
    async with make(f"start * {deed} once", flags=[NODES_ONLY]) as site:
        await site.add_nodes("good")
        await site.base.initialised("good")
        await site.counted("start", "cancelled" if deed == "cancel" else "raised")


@pytest.mark.parametrize("deed", ["hang", "deaf", "exit", "stay"])
async def test_a_provider_that_will_not_close_cannot_keep_the_manager_from_ending(
    make: MakeSite, deed: str
) -> None:
    async with make(f"close * {deed}", flags=[NODES_ONLY]) as site:
        await site.add_nodes("good")
        await site.base.initialised("good")
        assert await site.manager.stop() == 0
        assert "Ended in order" in site.manager.output()
        if deed == "stay":
            (line,) = (one for one in site.manager.output().splitlines() if "at once" in one)
            assert "stays: Event.wait (threading.py:" in line or "stays: Condition.wait" in line
            assert "_deaf" in line


async def test_a_start_that_hangs_can_be_ended(make: MakeSite) -> None:
    async with make("start * deaf", flags=[NODES_ONLY]) as site:
        await site.logged("Starting")
        await asyncio.sleep(1)
        assert await site.manager.stop() == 0
