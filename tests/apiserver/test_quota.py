"""A small quota of the cloud that nobody told the manager."""

from proreus.testing.waiting import until

from .site import Site, names


async def test_a_new_node_overtakes_the_check_of_all_others_where_the_quota_is_small(
    site: Site,
) -> None:
    old = names("old", 40)
    await site.join(*old)
    async with site.lone_manager():
        await site.initialised(*old)

    async def answered() -> int:
        return sum(call.status == 200 for call in await site.calls())

    await site.cloud.admin.configure(read_rate=0.5, read_burst=1.0)
    await site.cloud.admin.clear_calls()
    async with site.lone_manager(batch_size=1):
        await until("the check of all nodes has begun", answered)
        (new,) = await site.machines("new")
        await site.register_node(new, ready=True)
        await site.initialised("new")

        # The quota alone lets the others take a minute more.
        assert await answered() < len(old) / 2
