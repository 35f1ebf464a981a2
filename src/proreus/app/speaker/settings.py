"""Read a speaker's cloud-config and passwords, again and again."""

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from proreus.cloudprovider import ConfigError, config_text
from proreus.cloudprovider.config import read
from proreus.providers.local.bgp.config import BGP
from proreus.providers.local.config import LocalConfig

LONGEST: Final = 80
"""The most bytes of a password, by the kernel's TCP_MD5SIG_MAXKEYLEN."""
_ALLOWED: Final = frozenset(string.ascii_letters + string.digits + string.punctuation)


class SettingsFile:
    """The file of a cloud-config, of which the last good state counts."""

    def __init__(self, path: str) -> None:
        """Read the file.

        Raises:
            ConfigError: The file is missing or wrong.
        """
        self._path = path
        self._text = config_text(path)
        self.current = self._read(self._text)
        self.problems: tuple[str, ...] = ()
        """What is wrong with the file as it is now."""

    def refresh(self) -> LocalConfig:
        """Read the file again if it has changed; return the last good state."""
        try:
            text = config_text(self._path)
            if text != self._text or self.problems:
                self.current = self._read(text)
                self._text = text
        except ConfigError as error:
            self.problems = error.problems
        else:
            self.problems = ()
        return self.current

    def _read(self, text: str) -> LocalConfig:
        found = read(text, LocalConfig, source=self._path)
        if not found.bgp.peers:
            raise ConfigError((f"{self._path}: bgp.peers: give one, for speakers to announce to",))
        return found


def passwords(bgp: BGP) -> tuple[Mapping[str, str | None], tuple[str, ...]]:
    """Return the passwords by peer, None for one that cannot be read, and why not."""
    found: dict[str, str | None] = {}
    problems = []
    for name, peer in bgp.peers.items():
        if peer.password_file:
            try:
                found[name] = _password(Path(peer.password_file))
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                problems.append(f"bgp peers {name} password-file {peer.password_file}: {reason}")
                found[name] = None
    return found, tuple(problems)


def _password(path: Path) -> str:
    """Read a password.

    Raises:
        OSError: There is no such file.
        ValueError: The file's content cannot be a password; the message does not show it.
    """
    try:
        text = path.read_text("ascii").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("must be ASCII") from None
    if not 1 <= len(text) <= LONGEST or not _ALLOWED.issuperset(text):
        raise ValueError(f"must be 1 to {LONGEST} letters, digits and signs, without spaces")
    return text
