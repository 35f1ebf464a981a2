"""The capability `SSHKeys` of the provider `gce`: keys in the metadata of the project."""

from typing import Any, Final

import msgspec

from proreus.providers.gce.api import Api

KEY: Final = "sshKeys"


class Item(msgspec.Struct, frozen=True):
    """An entry of metadata."""

    key: str
    value: str = ""


class Metadata(msgspec.Struct, frozen=True):
    """The metadata of all instances of a project."""

    fingerprint: str = ""
    items: tuple[Item, ...] = ()


class _Project(msgspec.Struct, frozen=True):
    common: Metadata = msgspec.field(default=Metadata(), name="commonInstanceMetadata")


def with_key(metadata: Metadata, line: str) -> tuple[Item, ...] | None:
    """Return the entries with a line added to the keys; None if it is there. Pure."""
    lines = next((one.value for one in metadata.items if one.key == KEY), "").splitlines()
    if line in lines:
        return None
    rest = tuple(one for one in metadata.items if one.key != KEY)
    return (*rest, Item(KEY, "\n".join((*lines, line))))


class GCESSHKeys:
    """The keys of a project."""

    def __init__(self, api: Api, project: str) -> None:
        """Keep the client of Google."""
        self._api = api
        self._path = f"projects/{project}"

    async def add_to_all_instances(self, user: str, public_key: str) -> None:
        """Add a key to the project's metadata, unless it is there.

        Raises:
            RetryAfter: Somebody has changed the metadata meanwhile.
            CloudError: Google refuses.
        """
        found = (await self._api.get("projects.get", self._path, _Project)).common
        items = with_key(found, f"{user}:{public_key.strip()} {user}@{user}")
        if items is None:
            return
        body: dict[str, Any] = {"items": msgspec.to_builtins(items)}
        if found.fingerprint:
            body["fingerprint"] = found.fingerprint
        path = f"{self._path}/setCommonInstanceMetadata"
        await self._api.change("projects.setCommonInstanceMetadata", path, body)
