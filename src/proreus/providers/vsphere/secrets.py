"""Read the credentials of vCenters from a mounted Secret, in the official forms of its keys.

The official manager reads the Secret from the API server, for which it may read all Secrets of the
cluster. Here it is mounted: the manager needs no right, and a change is noticed as with any file.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from proreus.cloudprovider.errors import ConfigError

DIRECTORY: Final = "/etc/cloud/secrets"
"""Where the official manager looks for a mounted Secret if the cloud-config names no directory."""

_SESSIONS: Final = ("vc-session-manager-url", "vc-session-manager-token")


def secret_files(directory: str, servers: Iterable[str]) -> tuple[str, ...]:
    """Return the files of a Secret that is mounted, and those that it should have."""
    named = {f"{server}.{key}" for server in servers for key in ("username", "password")}
    place = Path(directory)
    if place.is_dir():
        named |= {one.name for one in place.iterdir() if _is_key(one)}
    return tuple(str(place / name) for name in sorted(named))


def mounted(directory: str) -> dict[str, tuple[str, str]]:
    """Return users and passwords by the vCenter's address; nothing without such a directory.

    Raises:
        ConfigError: A file cannot be read, or the Secret is not one of vCenters.
    """
    place = Path(directory)
    if not place.is_dir():
        return {}
    try:
        data = {one.name: one.read_text() for one in sorted(place.iterdir()) if _is_key(one)}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError((f"secrets-directory {directory}: cannot be read: {error}",)) from None
    return credentials(data)


def credentials(data: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return users and passwords by the vCenter's address, from a Secret's entries.

    There are two forms: `10.0.0.1.username` with `10.0.0.1.password`, and, since IPv6 addresses
    have colons, `server_x`, `username_x` and `password_x` with any x.

    Raises:
        ConfigError: Entries are in neither form, or stand alone; names each of them.
    """
    problems: list[str] = []
    users: dict[str, str] = {}
    passwords: dict[str, str] = {}
    for key, text in data.items():
        place, _, kind = key.rpartition(".")
        if key.endswith(_SESSIONS):
            problems.append(f"{key}: shared sessions are not supported: give user and password")
        elif kind == "username":
            users[place] = text.rstrip("\n")
        elif kind == "password":
            passwords[place] = text.rstrip("\n")
        elif key.startswith("server_"):
            server, end = text.strip(), key.removeprefix("server_")
            users[server] = data.get(f"username_{end}", "").rstrip("\n")
            passwords[server] = data.get(f"password_{end}", "").rstrip("\n")
        elif not _belongs(key, data):
            problems.append(f"{key}: must be <server>.username, <server>.password or server_<x>")
    problems += [
        f"{server}: has no {kind}"
        for server in sorted({*users, *passwords})
        for kind, found in (("username", users), ("password", passwords))
        if not found.get(server)
    ]
    if problems:
        raise ConfigError(tuple(f"Secret of the vCenters: {problem}" for problem in problems))
    return {server: (users[server], passwords[server]) for server in users}


def _belongs(key: str, data: Mapping[str, str]) -> bool:
    kind, _, end = key.partition("_")
    return kind in {"username", "password"} and f"server_{end}" in data


def _is_key(file: Path) -> bool:
    """Tell whether a file is an entry of the Secret; the kubelet has links of its own beside."""
    return not file.name.startswith(".") and file.is_file()
