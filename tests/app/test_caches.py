"""What a provider gets of what it needs: caches, and ConfigMaps as they are at the start."""

import asyncio
from typing import Any

import pytest

from proreus.app import readonly
from proreus.app.caches import (
    SYNC_SECONDS,
    Caches,
    OneConfigMap,
    config_map_names,
    config_maps,
    needed,
)
from proreus.app.options import Options
from proreus.app.rights import roles
from proreus.cloudprovider import ConfigError
from proreus.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from proreus.kube.objects import ConfigMap, Namespace, ObjectMeta
from proreus.kube.requests import LABELLED_NAMESPACES
from proreus.testing.clock import virtual_time

NEED = "config_maps/ingress-uid"
KEY = "kube-system/ingress-uid"
FOUND = ConfigMap(ObjectMeta(name="ingress-uid", namespace="kube-system"), {"uid": "x"})


class Answering:
    """A client that has one answer."""

    def __init__(self, answer: ConfigMap | KubeError) -> None:
        self._answer = answer
        self.asked: list[tuple[str, str]] = []

    async def get(self, resource: Any, name: str, namespace: str) -> ConfigMap:
        self.asked.append((namespace, name))
        if isinstance(self._answer, KubeError):
            raise self._answer
        return self._answer


async def read(answer: ConfigMap | KubeError) -> OneConfigMap:
    client: Any = Answering(answer)
    found = await config_maps(client, {NEED, "nodes"})
    assert client.asked == [("kube-system", "ingress-uid")]
    assert found.keys() == {NEED}
    lister = found[NEED]
    assert isinstance(lister, OneConfigMap)
    return lister


async def test_a_config_map_is_read_by_its_name() -> None:
    lister = await read(FOUND)
    assert lister.get(KEY) == FOUND
    assert lister.get("kube-system/other") is None
    assert list(lister.all()) == [FOUND]
    assert list(lister.by("index", "value")) == []


@pytest.mark.parametrize("error", [NotFound(404, "x"), Forbidden(403, "x")])
async def test_one_that_is_not_there_or_may_not_be_read_is_none(error: KubeError) -> None:
    assert (await read(error)).get(KEY) is None


async def test_an_api_server_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(Unreachable):
        await read(Unreachable("x", sent=False))


def test_a_need_that_there_is_nothing_for_is_named() -> None:
    lister = OneConfigMap(None)
    assert needed("tiny", frozenset({NEED}), {NEED: lister, "nodes": None}) == {NEED: lister}
    assert needed("tiny", frozenset({"nodes"}), {"nodes": None}) == {}
    with pytest.raises(ConfigError, match="the provider tiny needs secrets"):
        needed("tiny", frozenset({"secrets"}), {})


def test_the_right_to_read_it_is_among_the_roles() -> None:
    needs = frozenset({NEED, "nodes"})
    assert config_map_names(needs) == ("ingress-uid",)
    rules = [
        (rule.verbs, rule.names)
        for role in roles(Options(), needs=needs)
        for rule in role.rules
        if rule.resource == "configmaps" and role.namespace == "kube-system"
    ]
    assert (("get",), ("ingress-uid",)) in rules


class Listing:
    """A client whose lists are this, or fail so."""

    def __init__(self, answer: tuple[Namespace, ...] | KubeError) -> None:
        self._answer = answer

    async def list(self, resource: Any) -> Any:
        assert resource.plural == "namespaces"
        if isinstance(self._answer, KubeError):
            raise self._answer
        self.items = self._answer
        return self


def test_caches_are_made_once_when_they_are_needed_and_run_from_the_start() -> None:
    client: Any = None
    caches = Caches(client)
    running: list[str] = []
    assert set(caches.offered().values()) == {None}
    caches.need({"nodes", "endpoint_slices"})
    slices = caches.slices
    assert slices is not None
    caches.start(lambda name, run: running.append(name))
    assert running == ["endpointslices"]
    for _ in range(2):
        caches.need({"endpoint_slices", "namespaces"})
    assert running == ["endpointslices", "namespaces"]
    assert caches.slices is slices
    assert caches.informers == (slices, caches.namespaces)
    assert caches.offered() == {"endpoint_slices": slices, "namespaces": caches.namespaces}


@virtual_time
async def test_a_provider_does_not_wait_for_ever_for_namespaces() -> None:
    client: Any = None
    caches = Caches(client)
    caches.need({"namespaces"})
    loop = asyncio.get_running_loop()
    before = loop.time()
    await caches.read({"nodes"})
    assert loop.time() == before
    await caches.read({"namespaces"})
    assert loop.time() == before + SYNC_SECONDS


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ((Namespace(ObjectMeta(name="a", labels={"team": "x"})),), {"a"}),
        (Forbidden(403, "x"), set[str]()),
    ],
)
async def test_a_command_that_only_looks_has_namespaces_if_it_may_read_them(
    answer: tuple[Namespace, ...] | KubeError, known: set[str]
) -> None:
    client: Any = Listing(answer)
    found = await readonly.besides(client, {"namespaces"})
    assert {one.metadata.name for one in found["namespaces"].all()} == known
    assert await readonly.besides(client, {"nodes"}) == {}


def test_of_a_namespace_only_name_and_labels_are_kept() -> None:
    whole = Namespace(
        ObjectMeta(
            name="a",
            uid="1",
            resource_version="2",
            labels={"team": "x"},
            annotations={"long": "text"},
            finalizers=("f",),
        )
    )
    kept = ObjectMeta(name="a", uid="1", resource_version="2", labels={"team": "x"})
    assert LABELLED_NAMESPACES.completed(b"", (whole,)) == (Namespace(kept),)


@pytest.mark.parametrize("needs", [frozenset[str](), frozenset({"namespaces"})])
def test_namespaces_are_listed_only_for_a_provider_that_needs_them(needs: frozenset[str]) -> None:
    rules = [
        (rule.verbs, rule.names)
        for role in roles(Options(), needs=needs)
        for rule in role.rules
        if rule.resource == "namespaces"
    ]
    more = [(("list", "watch"), ())] if needs else []
    assert sorted(rules) == sorted([(("get",), ("kube-system",)), *more])
