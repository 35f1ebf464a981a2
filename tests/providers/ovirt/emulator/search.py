"""The engine's search language, as its guide describes it.

    name=web* and status=up or tag="my tag" sortby name desc page 2

Conditions beside each other are joined by `and`, which binds closer than `or`. What cannot be
read is no error: the engine finds nothing then.
"""

import fnmatch
import functools
import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from .world import Vm, World

Test = Callable[[Vm], bool]

TEXTS: Final = frozenset(
    [
        "name",
        "comment",
        "description",
        "fqdn",
        "ip",
        "on_host",
        "cluster",
        "datacenter",
        "tag",
        "address",
        "apps",
        "os",
        "pool",
        "type",
        "loggedinuser",
        "quota",
        "architecture",
        "custom_emulated_machine",
        "custom_cpu_type",
    ]
)
NUMBERS: Final = frozenset(
    [
        "cpu_usage",
        "mem_usage",
        "network_usage",
        "memory",
        "guaranteed_memory",
        "vcpus",
        "migration_progress_percent",
    ]
)
FIELDS: Final = TEXTS | NUMBERS | {"status", "id", "uptime", "creationdate"}
STATUSES: Final = {
    "unassigned": "unassigned", "down": "down", "up": "up", "poweringup": "powering_up",
    "paused": "paused", "migratingfrom": "migrating", "migratingto": "migrating",
    "unknown": "unknown", "notresponding": "not_responding", "waitforlaunch": "wait_for_launch",
    "rebootinprogress": "reboot_in_progress", "savingstate": "saving_state",
    "restoringstate": "restoring_state", "suspended": "suspended", "imageillegal": "image_illegal",
    "imagelocked": "image_locked", "poweringdown": "powering_down",
}  # fmt: skip
"""Statuses by the words of searches, which are others than those of the API."""
MIB: Final = 1 << 20

_TOKEN = re.compile(r'\s*(?:(!=|<=|>=|=|<|>)|"([^"]*)"|([^\s"=!<>]+))')


class Wrong(Exception):
    """The signal that a search cannot be read."""


class Found(msgspec.Struct):
    """What a search asks for: whether a machine is meant, the order, and the page."""

    tests: list[list[Test]]
    field: str = "name"
    is_descending: bool = False
    page: int = 1

    def has(self, vm: Vm) -> bool:
        return any(all(test(vm) for test in part) for part in self.tests)


def search(world: World, text: str, most: int | None, *, case_sensitive: bool = False) -> list[Vm]:
    """The machines that a search finds; none where it cannot be read."""
    try:
        query = parse(world, text, case_sensitive=case_sensitive)
    except Wrong:
        return []
    found = [vm for vm in world.vms.values() if query.has(vm)]
    found.sort(key=lambda vm: vm.name)
    found.sort(key=lambda vm: _values(world, vm, query.field), reverse=query.is_descending)
    if most is None:
        return found if query.page == 1 else []
    return found[most * (query.page - 1) : most * query.page]


def parse(world: World, text: str, *, case_sensitive: bool = False) -> Found:
    """Read a search.

    Raises:
        Wrong: It cannot be read.
    """
    tokens = list(_tokens(text))
    query = Found([[]])
    is_open = False
    while tokens:
        word = tokens.pop(0)
        lower = word.lower()
        if lower in {"sortby", "page"}:
            (_sort if lower == "sortby" else _turn)(query, tokens)
        elif lower in {"and", "or"}:
            if is_open or not query.tests[-1]:
                raise Wrong(word)
            if lower == "or":
                query.tests.append([])
            is_open = True
        elif tokens and tokens[0] in {"=", "!=", "<", ">", "<=", ">="}:
            relation = tokens.pop(0)
            value = tokens.pop(0) if tokens else ""
            test = _test(world, lower, relation, value, case_sensitive=case_sensitive)
            query.tests[-1].append(test)
            is_open = False
        else:
            query.tests[-1].append(_free(world, word))
            is_open = False
    if is_open:
        raise Wrong("the search ends with and, or or")
    return query


def _sort(query: Found, tokens: list[str]) -> None:
    """Read what follows `sortby`: a field, a direction, and perhaps a page."""
    field = _word(tokens)
    if field not in FIELDS:
        raise Wrong(f"sortby {field}")
    query.field = field
    if tokens and tokens[0].lower() in {"asc", "desc"}:
        query.is_descending = tokens.pop(0).lower() == "desc"
    if tokens and tokens[0].lower() != "page":
        raise Wrong(tokens[0])


def _turn(query: Found, tokens: list[str]) -> None:
    """Read what follows `page`: a number, and nothing else."""
    number = _word(tokens)
    if not number.isdecimal() or tokens:
        raise Wrong(f"page {number}")
    query.page = max(int(number), 1)


def _tokens(text: str) -> Iterable[str]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise Wrong(text[at:])
        yield next(part for part in match.groups() if part is not None)
        at = match.end()


def _word(tokens: list[str]) -> str:
    return tokens.pop(0).lower() if tokens else ""


def _test(world: World, field: str, relation: str, value: str, *, case_sensitive: bool) -> Test:
    if field not in FIELDS:
        raise Wrong(field)
    if field in NUMBERS:
        if not value.isdecimal():
            raise Wrong(value)
        number = int(value)
        compare: dict[str, Callable[[int], bool]] = {
            "=": lambda one: one == number, "!=": lambda one: one != number,
            "<": lambda one: one < number, ">": lambda one: one > number,
            "<=": lambda one: one <= number, ">=": lambda one: one >= number,
        }  # fmt: skip
        return lambda vm: compare[relation](vm.memory // MIB if field == "memory" else 0)
    if relation not in {"=", "!="}:
        raise Wrong(relation)
    if field == "status" and value.lower() not in STATUSES:
        raise Wrong(value)
    is_wanted = relation == "="
    fits = functools.partial(_fits, case_sensitive=case_sensitive)

    def test(vm: Vm) -> bool:
        if field == "status":
            return (vm.status == STATUSES[value.lower()]) == is_wanted
        if field == "id":
            return (vm.id == value.lower()) == is_wanted
        texts = _values(world, vm, field)
        if field == "tag":
            tags = {*world.parents, *world.parents.values(), *texts}
            known = {one for one in tags if fits(one, value)}
            below = set[str]().union(*(world.tags_below(one) for one in known))
            return bool(below & set(texts)) == is_wanted
        return any(fits(text, value) for text in texts) == is_wanted

    return test


def _free(world: World, word: str) -> Test:
    """A word alone is looked for in all texts."""
    return lambda vm: any(
        _fits(text, f"*{word}*", case_sensitive=False)
        for field in ("name", "comment", "description", "fqdn", "cluster", "datacenter", "ip")
        for text in _values(world, vm, field)
    )


def _fits(text: str, pattern: str, *, case_sensitive: bool) -> bool:
    """Only the asterisk is a wildcard."""
    escaped = re.sub(r"[\[?]", lambda it: f"[{it[0]}]", pattern)
    if not case_sensitive:
        text, escaped = text.lower(), escaped.lower()
    return fnmatch.fnmatchcase(text, escaped)


def _values(world: World, vm: Vm, field: str) -> list[str]:
    """What a machine has of a field."""
    cluster = world.clusters[vm.cluster]
    host = world.hosts.get(vm.host)
    return {
        "name": [vm.name],
        "comment": [vm.comment],
        "description": [vm.description],
        "fqdn": [vm.fqdn],
        "ip": [ip for device in vm.devices for ip in device.ips],
        "on_host": [host.name] if host else [""],
        "cluster": [cluster.name],
        "datacenter": [world.data_centers[cluster.parent].name],
        "tag": vm.tags,
        "id": [vm.id],
        "status": [vm.status],
    }.get(field, [""])
