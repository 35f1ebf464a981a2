"""Keep policy objects: by path, with revisions, references and the marks of what is deleted."""

import copy
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from .errors import bad_path, gone, in_use, invalid, marked, not_found, refused, stale
from .rules import check

Json = dict[str, Any]

OWNER: Final = "42495ba4-0000-4000-8000-000000000001"
KEPT: Final = (
    "lb-services", "lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "lb-app-profiles",
    "lb-persistence-profiles", "ip-pools", "tier-1s", "segments", "domains",
)  # fmt: skip
KINDS: Final = {
    "pool_path": "lb-pools",
    "sorry_pool_path": "lb-pools",
    "application_profile_path": "lb-app-profiles",
    "lb_persistence_profile_path": "lb-persistence-profiles",
    "lb_service_path": "lb-services",
    "active_monitor_paths": "lb-monitor-profiles",
    "passive_monitor_path": "lb-monitor-profiles",
    "group_path": "groups",
}
"""Of which kind that is to which a field refers."""
OWN_PATHS: Final = frozenset(("path", "parent_path", "remote_path", "relative_path"))


class Store:
    """All objects below `/infra`.

    Attributes:
        objects: By path.
        deleted: What is marked for deletion, by path, with the time at which it is purged.
        purges: Seconds for which deleted objects stay marked; 0: they are gone at once.
        partial: Whether a PATCH leaves what it does not name (`nsx-partial-patch-config`).
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.objects: dict[str, Json] = {}
        self.deleted: dict[str, tuple[float, Json]] = {}
        self.purges = 0.0
        self.partial = False

    def get(self, path: str) -> Json:
        """A copy of an object.

        Raises:
            NsxError: It or its parent is not there.
        """
        self._check_parent(path)
        if path not in self.objects:
            raise not_found(path)
        return copy.deepcopy(self.objects[path])

    def listed(self, collection: str, *, with_deleted: bool = False) -> list[Json]:
        """All objects of a collection, such as `/infra/lb-pools`."""
        self._check_parent(collection)
        self._purge()
        marked_ones = [one for _, one in self.deleted.values()] if with_deleted else []
        every = [*self.objects.values(), *marked_ones]
        return [copy.deepcopy(one) for one in every if _collection(one["path"]) == collection]

    def all(self) -> Iterator[Json]:
        """All objects, those that are marked for deletion among them."""
        self._purge()
        yield from self.objects.values()
        yield from (one for _, one in self.deleted.values())

    def write(
        self, path: str, kind: str, body: Json, given: Mapping[str, Any], user: str, *, patch: bool
    ) -> Json:  # fmt: skip
        """Create or replace an object by a body that has been checked; what it is then.

        Raises:
            NsxError: Its revision is not the current one, it refers to what is not there, or it is
                against a rule.
        """
        self._check_parent(path)
        self._purge()
        id_ = path.rpartition("/")[2]
        if given.get("id") not in {None, id_}:
            raise invalid([f"id {given['id']} is not that of the path"])
        if path in self.deleted:
            raise marked(path)
        old, revision = self.objects.get(path), given.get("_revision")
        if old is None and not patch and revision is not None:
            raise gone(path, revision)
        if old is not None and not patch and revision != old["_revision"]:
            raise stale(kind, id_, revision, old["_revision"])
        if old is not None and old["resource_type"] != kind:
            raise refused(f"The resource type of {path} is {old['resource_type']}, not {kind}.")
        for field, reference in references(body):
            wrong = field in KINDS and reference.split("/")[-2:-1] != [KINDS[field]]
            if wrong or (_is_kept(reference) and reference not in self.objects):
                raise bad_path(reference)
        whole = {**body, **_managed(path, old, user)}
        whole.setdefault("display_name", id_)
        check(self.objects, whole, old)
        self.objects[path] = whole
        return copy.deepcopy(whole)

    def delete(self, path: str, *, force: bool = False) -> Json:
        """Delete an object.

        Raises:
            NsxError: It is not there, belongs to the system, has children or is referred to.
        """
        self._check_parent(path)
        if path not in self.objects:
            raise not_found(path)
        if self.objects[path]["_system_owned"]:
            raise refused(f"The object {path} is owned by the system and cannot be deleted.")
        users = [*self.children(path), *self.referrers(path)]
        if users and not force:
            raise in_use(path, users)
        one = self.objects.pop(path)
        if self.purges:
            self.deleted[path] = self._now() + self.purges, {**one, "marked_for_delete": True}
        return one

    def children(self, path: str) -> list[str]:
        """The paths of objects below an object."""
        return sorted(one for one in self.objects if one.startswith(f"{path}/"))

    def referrers(self, path: str) -> list[str]:
        """The paths of objects that refer to an object."""
        return sorted(
            one for one, body in self.objects.items()
            if path in {reference for _, reference in references(body)}
        )  # fmt: skip

    def _check_parent(self, path: str) -> None:
        """Refuse a path below something that is not there."""
        parts = path.strip("/").split("/")
        for end in range(3, len(parts), 2):
            parent = "/" + "/".join(parts[:end])
            if parent not in self.objects:
                raise bad_path(parent)

    def _purge(self) -> None:
        for path in [path for path, (due, _) in self.deleted.items() if due <= self._now()]:
            del self.deleted[path]


def references(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """All paths that a body names in fields `…_path` and `…_paths`, after the name of the field."""
    if isinstance(value, dict):
        for name, one in value.items():
            if name not in OWN_PATHS:
                yield from references(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from references(one, field)
    elif isinstance(value, str) and value and field.endswith(("_path", "_paths", "paths")):
        yield field, value


def _is_kept(path: str) -> bool:
    """Whether objects of this kind are kept here, so that there is none if it is not here."""
    return path.startswith(tuple(f"/infra/{kind}/" for kind in KEPT))


def _collection(path: str) -> str:
    return path.rpartition("/")[0]


def _managed(path: str, old: Json | None, user: str) -> Json:
    """What the manager writes."""
    parent = _collection(_collection(path))
    id_ = path.rpartition("/")[2]
    now = int(time.time() * 1000)
    if old is None:
        unique = str(uuid.uuid4())
        old = {
            "_create_time": now, "_create_user": user, "_revision": -1, "_system_owned": False,
            "_protection": "NOT_PROTECTED", "unique_id": unique, "realization_id": unique,
            "owner_id": OWNER, "marked_for_delete": False, "overridden": False,
        }  # fmt: skip
    kept = {
        field: old[field] for field in (
            "_create_time", "_create_user", "_system_owned", "_protection", "unique_id",
            "realization_id", "owner_id", "marked_for_delete", "overridden",
        )
    }  # fmt: skip
    return kept | {
        "id": id_, "path": path, "relative_path": id_, "parent_path": parent, "remote_path": "",
        "_last_modified_time": now, "_last_modified_user": user, "_revision": old["_revision"] + 1,
    }  # fmt: skip
