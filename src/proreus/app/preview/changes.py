"""Define what a preview consists of. Values only."""

from typing import Literal

import msgspec

Action = Literal["create", "change", "delete"]


class Change(msgspec.Struct, frozen=True):
    """A preview of what would be done to one object.

    Attributes:
        about: The object: `node/worker-1`, `service/default/web`, `load-balancer/default/web`,
            `route/10.0.1.0/24`, `persistentvolume/data`.
        action: What happens to it.
        lines: Its parts, one a line, that begin with `+` (new), `-` (gone) or `~` (other).
        waits_for: What must be so before it is done; "" if nothing.
    """

    about: str
    action: Action
    lines: tuple[str, ...] = ()
    waits_for: str = ""


class Preview(msgspec.Struct, frozen=True):
    """All changes; `notes` say what could not be foreseen, `held` what will not be done."""

    changes: tuple[Change, ...]
    held: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code: 0 without changes, else 2."""
        return 2 if self.changes else 0
