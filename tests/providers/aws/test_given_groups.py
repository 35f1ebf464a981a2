"""The rules for a security group that several load balancers were given."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

from proreus.providers.aws.api import Api
from proreus.providers.aws.groups import HostGroups
from proreus.providers.aws.identity import ClusterTags, Place
from proreus.providers.aws.rules import HOST_RULE
from proreus.testing.clock import virtual_time

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path

GIVEN = "sg-given"


@virtual_time
async def test_a_look_from_long_ago_revokes_nothing_with_a_list_that_lacks_others_now() -> None:
    """The Service that looked first got the group again, or was deleted, before the second look."""
    writes: list[str] = []

    async def pages(*_: str, **__: Any) -> list[dict[str, Any]]:
        pair = {"GroupId": GIVEN, "Description": HOST_RULE}
        return [
            {
                "GroupId": "sg-hosts",
                "IpPermissions": [{"IpProtocol": "-1", "UserIdGroupPairs": [pair]}],
            }
        ]

    async def call(_: str, operation: str, **__: Any) -> None:
        writes.append(operation)

    async def lacking() -> Collection[str]:
        return set()

    listers = {"services": Objects(), "nodes": Objects()}
    api = SimpleNamespace(context=SimpleNamespace(listers=listers), pages=pages, call=call)
    place = Place("us-east-1", "vpc-1", "", ClusterTags("test"))
    hosts = HostGroups(cast("Api", api), place, confirm=10.0)
    assert await hosts.forget_given({GIVEN}, lacking) == {GIVEN}
    await asyncio.sleep(3 * 3600.0)
    assert await hosts.forget_given({GIVEN}, lacking) == {GIVEN}
    assert not writes
    await asyncio.sleep(10.1)
    assert not await hosts.forget_given({GIVEN}, lacking)
    assert writes == ["RevokeSecurityGroupIngress"]
