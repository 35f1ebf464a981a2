"""All instances get the SSH key, and new ones, too."""

from pathlib import Path

from proreus.testing.simulated import Fault, FaultMode
from proreus.testing.waiting import until

from .site import Site, names

ON = "--controllers=*,ssh-keys"
OPERATION = "instances.add_ssh_key"


async def have_key(site: Site, *machines: str) -> set[str]:
    """Wait until these instances have a key; the keys of all."""

    async def all_have() -> set[str] | None:
        found = {one.name: one.ssh_keys for one in await site.cloud.admin.instances()}
        return set().union(*found.values()) if all(found[one] for one in machines) else None

    return await until(f"{', '.join(machines)} have the key", all_have)


async def test_instances_have_the_key_and_new_ones_get_it_by_few_calls(
    site: Site, tmp_path: Path
) -> None:
    given = (ON, "--ssh-user=core", f"--ssh-keyfile={tmp_path / 'key'}")
    await site.machines("old")
    async with site.lone_manager(*given):
        (key,) = await have_key(site, "old")
        assert key.startswith("core:ssh-ed25519 ")
        await site.join(*names("new", 20))
        assert await have_key(site, *names("new", 20)) == {key}
        assert len(await site.calls(OPERATION)) <= 4
    async with site.lone_manager(*given):
        await site.join("later")
        assert await have_key(site, "later") == {key}


async def test_a_cloud_that_fails_is_asked_again(site: Site, tmp_path: Path) -> None:
    await site.machines("a")
    await site.cloud.admin.inject(Fault(mode=FaultMode.ERROR, operation=OPERATION, count=1))
    key = tmp_path / "key"
    async with site.lone_manager(ON, "--ssh-user=core", f"--ssh-keyfile={key}") as manager:
        await have_key(site, "a")
        assert "The SSH key could not be given to the instances" in manager.log.read_text()
        assert key.read_text().splitlines()[1] not in manager.log.read_text()


async def test_without_flags_no_key_is_given(site: Site) -> None:
    async with site.lone_manager(ON):
        await site.join("a")
        await site.initialised("a")
    assert not await site.calls(OPERATION)
