"""Merging two cloud-configs: what the Secret says overrides the file, and nothing else does."""

import json
from typing import Any

import pytest

from proreus.cloudprovider.config_merge import merge_configs
from proreus.cloudprovider.errors import ConfigError


def merged(file: str, secret: str) -> dict[str, Any]:
    text = merge_configs(file, secret, file_source="a.yaml", secret_source="b/c/d")
    found: dict[str, Any] = json.loads(text)
    return found


def test_what_the_secret_says_overrides_the_file_however_a_name_is_spelt() -> None:
    found = merged("aadClientId: a\nresourceGroup: g\nzone: on", '{"AADClientID": "b", "new": 1}')
    assert found == {"aadClientId": "b", "resourceGroup": "g", "zone": "on", "new": "1"}


def test_a_null_in_the_secret_leaves_what_the_file_says() -> None:
    assert merged("a: 1\nb: {c: 2}", "a: null\nb: {c: ~}") == {"a": "1", "b": {"c": "2"}}


def test_mappings_are_merged_and_lists_replaced() -> None:
    found = merged("tags: {a-b: 1, a_b: 2}\nmany: [{x: 1}, 2]", "tags: {a-b: 3}\nmany: [4]")
    assert found == {"tags": {"a-b": "3", "a_b": "2"}, "many": ["4"]}


@pytest.mark.parametrize(("file", "secret"), [("", "a: 1"), ("a: 1", "")])
def test_one_of_them_may_be_empty(file: str, secret: str) -> None:
    assert merged(file, secret) == {"a": "1"}


def test_what_cannot_be_read_is_told_of_both() -> None:
    with pytest.raises(ConfigError) as error:
        merged("a: [", '{"b": ')
    first, second = error.value.problems
    assert first.startswith("a.yaml:1: is not YAML")
    assert second.startswith("b/c/d:1: is not JSON")
