"""Find out what a fixture and its provider do not offer, without starting either."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from proreus.testing.conformance.fixture import CloudFixture

DECLARED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "instances": "the provider has no instances",
        "load_balancers": "the provider has no load_balancers",
        "routes": "the provider has no routes",
        "endpoint": "the cloud does not speak HTTP",
        "batches": "batch_size is 1",
        "list_owned": "the provider cannot list what a cluster owns",
        "groups": "all Services are one group",
        "preview": "the provider cannot say what it would change, so `proreus plan` shows no parts",
        "fingerprint": "the provider has no fingerprint, so each restart ensures every Service",
    }
)
"""The words that `CloudFixture.lacks` may name, with their meaning."""

_METHODS: Final = (
    "create_machines",
    "remove_machine",
    "stop_machine",
    "objects",
    "remove_object",
    "create_foreign",
)
OBJECTS_LISTED: Final = "objects_listed"
"""Wanted by rules that compare the cloud's objects: `objects`, or else `list_owned`, shows them."""

WANTS: Final = frozenset((*DECLARED, *_METHODS, "page_size", "marks_routes", OBJECTS_LISTED))
"""The things that a rule may want of a fixture."""


def left_out(fixture: object) -> Mapping[str, str]:
    """Return what a fixture does not offer, each with the reason; nothing if it is no class.

    Raises:
        ValueError: `lacks` names a feature that does not exist.
    """
    if not (isinstance(fixture, type) and issubclass(fixture, CloudFixture)):
        return {}
    _check(fixture.lacks, fixture.__name__)
    found = {what: DECLARED[what] for what in fixture.lacks}
    for method in _METHODS:
        if getattr(fixture, method) is getattr(CloudFixture, method):
            found[method] = f"the fixture has no {method}()"
    if fixture.page_size is None:
        found["page_size"] = "the fixture sets no page_size"
    if not fixture.marks_routes:
        found["marks_routes"] = "routes of the cloud carry no marks"
    if "objects" in found and "list_owned" in found:
        found[OBJECTS_LISTED] = f"{found['objects']}, and {found['list_owned']}"
    return found


def _check(lacks: Collection[str], fixture: str) -> None:
    unknown = sorted(set(lacks) - DECLARED.keys())
    if unknown:
        raise ValueError(
            f"{fixture}.lacks names {', '.join(unknown)}: it may name {', '.join(DECLARED)}"
        )
