"""What a provider gets of what it needs: caches, and ConfigMaps as they are at the start."""

from typing import Any

import pytest

from proreus.app.caches import OneConfigMap, config_map_names, config_maps, needed
from proreus.app.options import Options
from proreus.app.rights import roles
from proreus.cloudprovider import ConfigError
from proreus.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from proreus.kube.objects import ConfigMap, ObjectMeta

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
