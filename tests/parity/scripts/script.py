"""What a script is."""

from typing import Any

import msgspec


class Script(msgspec.Struct, frozen=True):
    """A story of events.

    Attributes:
        name: Prefix of all its objects.
        stages: Each is a sequence of steps. The scripts of a wave begin each stage together.
    """

    name: str
    stages: tuple[tuple[Any, ...], ...]


def script(name: str, *stages: tuple[Any, ...]) -> Script:
    """Name a script; steps may be nested."""
    return Script(name, tuple(tuple(_flat(stage)) for stage in stages))


def _flat(steps: tuple[Any, ...]) -> list[Any]:
    return [one for step in steps for one in (_flat(step) if isinstance(step, tuple) else [step])]


class Wave(msgspec.Struct, frozen=True):
    """Scripts that are played at the same time.

    Attributes:
        name: Names it.
        scripts: They share the cluster and the cloud.
        nodes: How many nodes the stage has that are no script's.
        lasting: Whether they are looked at when all waves are over.
        quick: Whether it is over soon: no script has to wait for another try.
    """

    name: str
    scripts: tuple[Script, ...]
    nodes: int = 0
    lasting: bool = False
    quick: bool = False
