"""Flags whose effect is seen from outside, several at one manager."""

import json
from itertools import pairwise

from proreus.kube.requests import LEASES, Request
from proreus.testing.waiting import until

from .site import Site, names


async def test_flags_of_pace_and_names_are_obeyed(site: Site) -> None:
    flags = (
        "--logging-format=json", "--controller-start-interval=400ms", "--cluster-name=blue",
        "--concurrent-node-status-updates=1",
        "--leader-elect", "--leader-elect-resource-name=own-lease",
        "--leader-elect-resource-namespace=default", "--leader-elect-lease-duration=33s",
        "--feature-gates=CloudControllerManagerWebhook=true,Other=false",
    )  # fmt: skip
    await site.client.send(Request("DELETE", LEASES.path("default")), dict)
    async with site.manager(*flags) as manager:
        await site.join(*names("node", 3))
        await site.initialised()
        await site.create_service("web")

        async def has_address() -> bool:
            return bool((await site.service("web")).status.load_balancer.ingress)

        await until("the Service has an address", has_address)
        lease = await site.client.get_lease("default", "own-lease")
        lines = [json.loads(line) for line in manager.output().splitlines()]

    assert lease["spec"]["leaseDurationSeconds"] == 33
    started = [line["ts"] for line in lines if line["msg"] == "Started"]
    assert len(started) >= 3
    # Milliseconds; the pause is at least as long as the flag says.
    assert all(later - earlier >= 399 for earlier, later in pairwise(started))
    (gates,) = [line["gates"] for line in lines if line["msg"].startswith("Feature gates")]
    assert gates == "CloudControllerManagerWebhook Other"
    tags = [part["tags"] for part in await site.cloud.admin.parts("load_balancer")]
    assert tags
    assert all("blue" in tag.values() for tag in tags)
