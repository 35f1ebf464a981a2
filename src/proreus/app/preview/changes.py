"""Define what a preview consists of. Values only."""

from typing import Literal

import msgspec

Action = Literal["create", "change", "delete"]


class Change(msgspec.Struct, frozen=True):
    """A preview of what would be done to one object.

    Attributes:
        about: The object: `node/worker-1`, `service/default/web`, `load-balancer/default/web`,
            `route/10.0.1.0/24`, `persistentvolume/data`.
        action: The action on the object, such as create or delete.
        lines: The lines that show the change, each beginning with `+` (new), `-` (gone) or `~`
            (other).
        waits_for: The condition that must hold before the change is made; "" if there is none.
        cloud: The name of the object's cloud, where there are several.
    """

    about: str
    action: Action
    lines: tuple[str, ...] = ()
    waits_for: str = ""
    cloud: str = ""


class Preview(msgspec.Struct, frozen=True):
    """All changes; `notes` say what could not be foreseen, `held` what will not be done.

    `unread` names the clouds of several that could not be asked, and why.
    """

    changes: tuple[Change, ...]
    held: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    def of(self, cloud: str) -> "Preview":
        """Return the preview with the cloud's name in all parts; unchanged for the only one, ""."""
        if not cloud:
            return self
        return Preview(
            tuple(msgspec.structs.replace(change, cloud=cloud) for change in self.changes),
            tuple(f"cloud {cloud}: {text}" for text in self.held),
            tuple(f"cloud {cloud}: {text}" for text in self.notes),
            tuple(f"cloud {cloud}: {text}" for text in self.unread),
        )

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if a cloud could not be asked, 0 without changes, else 2."""
        if self.unread:
            return 1
        return 2 if self.changes else 0
