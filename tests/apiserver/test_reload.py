"""The cloud-config changes while the manager runs: new credentials are used, wrong ones are not."""

import base64
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proreus.kube.errors import NotFound
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import EVENTS, SECRETS
from proreus.testing.manager import ManagerProcess, cloud_config
from proreus.testing.waiting import until

from .site import TOKENS, Site

ASKING = ("--node-status-update-frequency=1s", "--load-balancer-resync-period=1h")
PLACE = "kube-system/cloud/cloud.conf"


def config(site: Site, token: str) -> str:
    return cloud_config(site.cloud, token=token)


async def called_as(site: Site, caller: str) -> None:
    """Wait until the cloud is asked with that caller's token, from now on."""
    before = len(await site.cloud.admin.calls())

    async def asked() -> bool:
        return any(call.caller == caller for call in (await site.cloud.admin.calls())[before:])

    await until(f"the cloud is called as {caller}", asked)


async def told(manager: ManagerProcess, *parts: str) -> None:
    """Wait until one line of the log has all these parts."""

    async def said() -> bool:
        return any(all(part in line for part in parts) for line in manager.output().splitlines())

    await until(f"the manager says {parts}", said)


async def warned(site: Site, reason: str, part: str) -> None:
    """Wait for the event in kube-system; those of other tests may be there too."""

    async def there() -> bool:
        events: list[dict[str, Any]] = list((await site.client.list(EVENTS, "kube-system")).items)
        return any(one["reason"] == reason and part in one["message"] for one in events)

    await until(f"event {reason} with {part}", there)


async def served(site: Site, name: str) -> None:
    async def has_address() -> bool:
        return bool((await site.service(name)).status.load_balancer.ingress)

    await until(f"{name} has an address", has_address)


async def test_a_token_that_changes_in_the_file_is_used_and_no_service_is_touched(
    site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "cloud.conf"
    file.write_text(config(site, TOKENS["first"]))
    async with site.lone_manager(f"--cloud-config={file}", *ASKING) as manager:
        await site.join("a")
        await site.initialised("a")
        await site.create_service("web")
        await served(site, "web")
        await called_as(site, "first")
        writes = len(site.writes("services"))
        parts = await site.cloud.admin.parts()

        file.write_text(config(site, TOKENS["second"]))

        await called_as(site, "second")
        await told(manager, "The new cloud-config is in use")
        await site.join("b")
        await site.initialised("b")
        assert manager.is_running
        assert len([one for one in manager.output().splitlines() if '"Starting"' in one]) == 1
        await site.quiet(lambda: len(site.writes("services")))
        assert await site.cloud.admin.parts() != []
        assert {part["id"] for part in parts} <= {
            part["id"] for part in await site.cloud.admin.parts()
        }
        # The new node is a new host of the load balancer; the Service object stays as it was.
        assert len(site.writes("services")) == writes


async def test_evidence_from_other_credentials_counts_against_no_node(
    site: Site, tmp_path: Path
) -> None:
    """One answer of the old credentials and one of the new ones do not make two."""
    file = tmp_path / "cloud.conf"
    file.write_text(config(site, TOKENS["first"]))
    flags = ("--node-monitor-period=200ms", "--node-deletion-interval=1h", "-v=4")
    async with site.lone_manager(f"--cloud-config={file}", *ASKING, *flags) as manager:
        (gone, *_) = await site.join("a", "b", "c")
        await site.initialised("a", "b", "c")
        await site.cloud.admin.delete(gone.id)
        await site.silence("a")

        async def waits(since: str, *seconds: int) -> bool:
            """Whether it has been said, after some text, that the node may go in so many seconds."""
            said = manager.output().rpartition(since)[2] if since else manager.output()
            found = re.findall(r'"The node looks gone" node="a" may_go_in_seconds="?(\d+)', said)
            return any(int(one) in seconds for one in found)

        await until("an hour minus 3 s", lambda: waits("", 3597))
        file.write_text(config(site, TOKENS["second"]))
        changed = "The new cloud-config is in use"
        await told(manager, changed)
        await until("an hour again", lambda: waits(changed, 3599, 3600))


async def test_what_is_wrong_is_reported_and_the_old_config_stays_until_it_is_right(
    site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "cloud.conf"
    file.write_text(config(site, TOKENS["first"]))
    async with site.lone_manager(f"--cloud-config={file}", *ASKING) as manager:
        await site.join("a")
        await site.initialised("a")

        file.write_text(config(site, "t0psecret").replace("region", "regoin"))

        await told(manager, "The new cloud-config is not used", "regoin")
        await warned(site, "CloudConfigInvalid", f"{file}:3: [Global] regoin: is unknown")
        await called_as(site, "first")

        # It reads well, but the cloud refuses it.
        file.write_text(config(site, "t0psecret"))
        await warned(site, "CloudConfigRefused", "token")
        await called_as(site, "first")

        file.unlink()
        await told(manager, "The new cloud-config is not used", "cannot read")
        await called_as(site, "first")

        file.write_text(config(site, TOKENS["first"]))
        await told(manager, "The cloud-config is back to the one in use")

        file.write_text(config(site, TOKENS["second"]))
        await called_as(site, "second")
        assert "t0psecret" not in manager.output()


async def test_a_token_file_that_the_config_names_is_followed_too(
    site: Site, tmp_path: Path
) -> None:
    token, file = tmp_path / "token", tmp_path / "cloud.conf"
    token.write_text(TOKENS["first"])
    file.write_text(
        f'[Global]\nendpoint = "{site.cloud.endpoint}"\nregion = sim-1\ntoken-file = "{token}"\n'
    )
    async with site.lone_manager(f"--cloud-config={file}", *ASKING):
        await site.join("a")
        await site.initialised("a")
        await called_as(site, "first")
        token.write_text(TOKENS["second"])
        await called_as(site, "second")


@pytest.fixture
async def secret(site: Site) -> AsyncIterator[None]:
    """No Secret before and after the test."""
    await _gone(site)
    yield
    await _gone(site)


async def _gone(site: Site) -> None:
    try:
        await site.client.delete(SECRETS, "cloud", "kube-system")
    except NotFound:
        return


async def _write(site: Site, text: str | None) -> None:
    data = {} if text is None else {"cloud.conf": base64.b64encode(text.encode()).decode()}
    patch = Patch(PatchType.MERGE, {"data": data or {"cloud.conf": None}})
    await site.client.patch(SECRETS, "cloud", patch, "kube-system")


@pytest.mark.usefixtures("secret")
async def test_a_secret_is_waited_for_and_followed(site: Site) -> None:
    flags = ("--cloud-config=", f"--cloud-config-secret={PLACE}", *ASKING)
    async with site.lone_manager(*flags) as manager:
        await told(manager, "There is no cloud-config yet", "there is no Secret kube-system/cloud")
        await site.client.create(SECRETS, {"metadata": {"name": "cloud"}}, "kube-system")
        await told(manager, "There is no cloud-config yet", "has no key 'cloud.conf'")
        await _write(site, config(site, TOKENS["first"]))
        await site.join("a")
        await site.initialised("a")
        await called_as(site, "first")

        await _write(site, None)
        await warned(site, "CloudConfigInvalid", "the Secret kube-system/cloud has no key")
        await called_as(site, "first")

        await _write(site, config(site, TOKENS["second"]))
        await called_as(site, "second")
        assert TOKENS["first"] not in manager.output()
