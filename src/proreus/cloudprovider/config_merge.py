"""Merge two cloud-configs of one provider, such as a file and a Secret. Pure."""

import json
from enum import StrEnum
from typing import Any

from proreus.cloudprovider.config_tree import Leaf, Many, Tree, detect, is_null, parse, plain
from proreus.cloudprovider.errors import ConfigError


class ConfigSource(StrEnum):
    """The part of the cloud-config that counts, where flags name a file and a Secret."""

    FILE = "file"
    SECRET = "secret"  # noqa: S105 - not one, but where one is
    MERGE = "merge"
    """Both: what the Secret says overrides the file."""


def merge_configs(file: str, secret: str, *, file_source: str, secret_source: str) -> str:
    """Return a cloud-config with the keys of both texts, in JSON; those of the Secret win.

    Both are JSON or YAML. Mappings are merged key by key, lists and values replaced; a null in the
    Secret leaves what the file says. Every value becomes a text, as the fields that take them want.

    Args:
        file: The text of the file.
        secret: The text of the Secret.
        file_source: Where the file is from, for messages; its suffix may tell the format.
        secret_source: Where the Secret is from, for messages.

    Raises:
        ConfigError: A text cannot be read; names all lines that cannot.
    """
    wrong: list[str] = []
    merged: dict[str, Any] = {}
    spelt: dict[str, str] = {}
    for text, source in ((file, file_source), (secret, secret_source)):
        root, problems = parse(text, detect(text, source))
        wrong += [f"{source}:{one.line}: {one.message}" for one in problems]
        for entry in root.items:
            name = spelt.setdefault(plain(entry.name), entry.name)
            if not is_null(entry.tree):
                merged[name] = _over(merged.get(name), entry.tree)
    if wrong:
        raise ConfigError(tuple(wrong))
    return json.dumps(merged)


def _over(before: Any, tree: Tree) -> Any:
    """Return a value, merged with the value before it where both are mappings."""
    if isinstance(tree, Leaf):
        return tree.text
    if isinstance(tree, Many):
        return [_over(None, one) for one in tree.items]
    found = dict(before) if isinstance(before, dict) else {}
    for entry in tree.items:
        if not is_null(entry.tree):
            found[entry.name] = _over(found.get(entry.name), entry.tree)
    return found
