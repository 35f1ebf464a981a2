"""How two pictures differ, and which differences are meant. Pure."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from .picture import Picture


class Difference(msgspec.Struct, frozen=True, order=True):
    """A field of a script's picture that is not the same; None where it is not there."""

    script: str
    field: str
    go: str | None
    ours: str | None

    def __str__(self) -> str:
        """For people."""
        return f"{self.script}: {self.field}: Go {self.go!r}, here {self.ours!r}"


class Meant(msgspec.Struct, frozen=True):
    """Differences that are meant.

    Attributes:
        why: The row of the page of differences, by its first cell.
        scripts: Where it occurs; each must show it. Patterns, which some script must fit.
        field: A pattern.
        go: What Go has: a pattern, or None for nothing.
        ours: What is here: a pattern, or None for nothing.
    """

    why: str
    scripts: tuple[str, ...]
    field: str
    go: str | None
    ours: str | None

    def fits(self, difference: Difference) -> bool:
        """Whether the difference is one of these."""
        return (
            any(fnmatchcase(difference.script, one) for one in self.scripts)
            and fnmatchcase(difference.field, _literal(self.field))
            and _fits(difference.go, self.go)
            and _fits(difference.ours, self.ours)
        )


def differences(script: str, go: Picture, ours: Picture) -> list[Difference]:
    """All fields that differ."""
    return [
        Difference(script, field, go.get(field), ours.get(field))
        for field in sorted(go.keys() | ours.keys())
        if go.get(field) != ours.get(field)
    ]


def surprises(script: str, go: Picture, ours: Picture, meant: Iterable[Meant]) -> list[str]:
    """What is not as it is meant to be: differences without a reason, and those that lack."""
    found = differences(script, go, ours)
    meant = tuple(meant)
    wrong = [str(one) for one in found if not any(rule.fits(one) for rule in meant)]
    missing = [
        f"{script}: {rule.field} does not differ, but should ({rule.why})"
        for rule in meant
        if script in rule.scripts and not any(rule.fits(one) for one in found)
    ]
    return wrong + missing


def idle(meant: Sequence[Meant], found: Sequence[Difference]) -> list[Meant]:
    """The rules that no difference needs."""
    return [rule for rule in meant if not any(rule.fits(one) for one in found)]


def _fits(value: str | None, pattern: str | None) -> bool:
    if value is None or pattern is None:
        return value is pattern
    return fnmatchcase(value, _literal(pattern))


def _literal(pattern: str) -> str:
    """Square brackets stand for themselves."""
    return pattern.replace("[", "[[]")
