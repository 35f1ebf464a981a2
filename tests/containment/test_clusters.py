"""Names of clusters that a provider answers are printed: they must be lines of text."""

from collections.abc import Sequence
from typing import Any

import pytest

from proreus.cloudprovider import CloudError, CloudProvider, InvalidRequest
from proreus.containment.clusters import GuardedClusters
from proreus.containment.faults import Fault, Faults
from proreus.containment.guard import Guard
from proreus.containment.guarded import guarded
from proreus.kube.objects import KubeObject


class NoEvents:
    """Drops events."""

    def event(self, obj: KubeObject, type_: str, reason: str, message: str, /) -> None: ...


class Answers:
    """Clusters that answer whatever they were made with."""

    def __init__(self, names: Any = ("prod",), address: Any = "10.0.0.1") -> None:
        self.names, self.address = names, address

    async def list(self) -> Sequence[str]:
        return self.names  # type: ignore[no-any-return]

    async def master(self, name: str) -> str:
        if name == "none":
            raise InvalidRequest("there is no cluster 'none'")
        return self.address  # type: ignore[no-any-return]


def clusters(answers: Answers) -> GuardedClusters:
    return GuardedClusters(answers, Guard(Faults("answers", NoEvents())))


async def test_names_and_addresses_and_errors_of_the_cloud_are_passed_on() -> None:
    good = clusters(Answers(["prod", "größer"]))
    assert await good.list() == ["prod", "größer"]
    assert await good.master("prod") == "10.0.0.1"
    assert await clusters(Answers([])).list() == []
    with pytest.raises(InvalidRequest, match="'none'"):
        await good.master("none")


@pytest.mark.parametrize(
    "names", [None, "prod", b"prod", {"prod"}, ["prod", 7], [""], ["a\x1b[2J"]]
)
async def test_a_list_that_is_none_or_holds_what_is_no_line_is_a_fault(names: object) -> None:
    with pytest.raises(Fault, match="list_clusters"):
        await clusters(Answers(names)).list()


@pytest.mark.parametrize("address", [None, "", 7, "10.0.0.1\nInjected: line"])
async def test_an_address_that_is_no_line_is_a_fault(address: object) -> None:
    with pytest.raises(Fault, match="master gave an invalid answer"):
        await clusters(Answers(address=address)).master("prod")


async def test_a_provider_that_raises_anything_raises_an_error_of_the_cloud() -> None:
    class Exits(CloudProvider):
        name = "exits"

    class Raises(Answers):
        async def list(self) -> Sequence[str]:
            raise SystemExit(3)

    provider = Exits(None)
    assert guarded(provider, Guard(Faults("exits", NoEvents()))).clusters is None
    provider.clusters = Raises()
    wrapped = guarded(provider, Guard(Faults("exits", NoEvents()))).clusters
    assert wrapped is not None
    with pytest.raises(CloudError, match="SystemExit"):
        await wrapped.list()
