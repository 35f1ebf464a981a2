"""Read leader migration: which controllers run under the lease shared with another manager.

The file of `--leader-migration-config` is Kubernetes' LeaderMigrationConfiguration, which
kube-controller-manager reads too:

    apiVersion: controllermanager.config.k8s.io/v1
    kind: LeaderMigrationConfiguration
    leaderName: cloud-provider-extraction-migration
    controllerLeaders:
      - {name: service, component: "*"}
      - {name: route, component: kube-controller-manager}

Names of no controller here belong to the other manager, and are ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from proreus.cloudprovider import ConfigError
from proreus.cloudprovider.config_tree import (
    Branch,
    Format,
    Leaf,
    Many,
    Named,
    Tree,
    is_null,
    parse,
)
from proreus.controllers.table import CONTROLLERS

COMPONENT: Final = "cloud-controller-manager"
ANY: Final = "*"
GROUP: Final = "controllermanager.config.k8s.io"
VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
KIND: Final = "LeaderMigrationConfiguration"
LEASE: Final = "cloud-provider-extraction-migration"
_FLAG: Final = "--leader-migration-config"
_FIELDS: Final = ("apiVersion", "kind", "leaderName", "resourceLock", "controllerLeaders")
_LEADER_FIELDS: Final = ("name", "component")


class Migration(msgspec.Struct, frozen=True):
    """A leader migration's configuration: which component runs which controller.

    Attributes:
        lease: The name of the shared lease.
        components: The component that runs each controller under the shared lease, by the
            controller's canonical name; "*" is whoever holds the lease.
    """

    lease: str
    components: Mapping[str, str]

    def is_ours(self, controller: str) -> bool:
        """Tell whether the controller runs here under the shared lease."""
        return self.components.get(controller) in {ANY, COMPONENT}

    def elsewhere(self, controller: str) -> str:
        """Return the component that runs the controller instead of this one, or ""."""
        component = self.components.get(controller, "")
        return "" if component in {"", ANY, COMPONENT} else component


DEFAULT: Final = Migration(
    LEASE,
    MappingProxyType(
        {
            "node-route-controller": ANY,
            "service-lb-controller": ANY,
            "cloud-node-lifecycle-controller": ANY,
        }
    ),
)
"""The migration without a file. Go's default misses two by using their former names."""


def canonical(name: str) -> str:
    """Return a controller's canonical name, by any name Kubernetes has used for it, or "".

    A controller's names are the canonical name, the alias, and the alias with `-controller`.
    """
    for one in CONTROLLERS:
        if name in {one.name, one.alias, f"{one.alias}-controller"}:
            return one.name
    return ""


def load(path: str) -> Migration:
    """Read the file; without one ("") return `DEFAULT`.

    Raises:
        ConfigError: The file is wrong; names every problem, unknown fields too.
    """
    if not path:
        return DEFAULT
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError((f"{_FLAG}: cannot read {path}: {error.strerror}",)) from None
    except UnicodeDecodeError:
        raise ConfigError((f"{_FLAG}: {path} is not UTF-8",)) from None
    reader = _Reader(path)
    found = reader.read(text)
    if reader.problems:
        raise ConfigError(tuple(reader.problems))
    return found


class _Reader:
    """A reader of one file, which collects its problems."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.problems: list[str] = []

    def read(self, text: str) -> Migration:
        root, unread = parse(text, Format.JSON if text.lstrip().startswith("{") else Format.YAML)
        for problem in unread:
            self._wrong(problem.line, problem.place, problem.message)
        fields = self._fields(root, _FIELDS, "")
        if not unread:
            versions = tuple(f"{GROUP}/{version}" for version in VERSIONS)
            self._one_of(root, fields, "apiVersion", versions)
            self._one_of(root, fields, "kind", (KIND,))
        if "resourceLock" in fields:
            self._one_of(root, fields, "resourceLock", ("leases",))
        lease = LEASE
        if "leaderName" in fields:
            lease = self._text(fields["leaderName"], "leaderName", "name the lease")
        components: dict[str, str] = {}
        if leaders := fields.get("controllerLeaders"):
            if isinstance(leaders.tree, Many):
                for index, item in enumerate(leaders.tree.items):
                    self._leader(item, f"controllerLeaders[{index}]", components)
            else:
                self._wrong(leaders.line, "controllerLeaders", "must be a list")
        return Migration(lease, components)

    def _leader(self, tree: Tree, place: str, components: dict[str, str]) -> None:
        if not isinstance(tree, Branch):
            self._wrong(tree.line, place, "must be a mapping with name and component")
            return
        fields = self._fields(tree, _LEADER_FIELDS, f"{place}.")
        values = {}
        for name in _LEADER_FIELDS:
            entry = fields.get(name) or Named(tree.line, name, Leaf(tree.line, None))
            remedy = "name the controller" if name == "name" else f'name a component, or "{ANY}"'
            values[name] = self._text(entry, f"{place}.{name}", remedy)
        controller = canonical(values["name"])
        if not controller or not values["component"]:
            return
        before = components.setdefault(controller, values["component"])
        if before != values["component"]:
            problem = f"{controller} already belongs to {before}; keep one of the two"
            self._wrong(tree.line, place, problem)

    def _fields(self, branch: Branch, known: Sequence[str], prefix: str) -> dict[str, Named]:
        """Return the entries by name; report unknown ones."""
        for entry in branch.items:
            if entry.name not in known:
                there_are = ", ".join(known)
                self._wrong(
                    entry.line, f"{prefix}{entry.name}", f"is unknown; there are {there_are}"
                )
        return {entry.name: entry for entry in branch.items if not is_null(entry.tree)}

    def _one_of(
        self, root: Branch, fields: Mapping[str, Named], name: str, values: Sequence[str]
    ) -> None:
        entry = fields.get(name) or Named(root.line, name, Leaf(root.line, None))
        if not (isinstance(entry.tree, Leaf) and entry.tree.text in values):
            self._wrong(entry.line, name, f"must be {' or '.join(values)}")

    def _text(self, entry: Named, place: str, remedy: str) -> str:
        if isinstance(entry.tree, Leaf) and entry.tree.text:
            return entry.tree.text
        self._wrong(entry.line, place, f"must be a text and not empty: {remedy}")
        return ""

    def _wrong(self, line: int, place: str, message: str) -> None:
        words: Iterator[str] = filter(None, (f"{_FLAG}: {self._path}:{line}:", place, message))
        self.problems.append(" ".join(words))
