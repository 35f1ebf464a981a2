"""Remember which credentials a cloud has refused, so that no account is locked.

Clouds lock an account after some wrong passwords. The framework tries a cloud that refuses again
within seconds, with a new provider each time; so this is remembered in the process.
"""

import hashlib
import time
from collections.abc import Sequence

from proreus.cloudprovider.errors import Unauthenticated


class Logins:
    """A memory of refused credentials; none of them can be read in it."""

    def __init__(self, pause: float) -> None:
        """Begin with nothing refused.

        Args:
            pause: Seconds for which refused credentials are not sent again.
        """
        self._pause = pause
        self._refused: dict[bytes, tuple[float, str]] = {}

    def check(self, credentials: Sequence[str]) -> None:
        """Let credentials pass that have not been refused lately.

        Args:
            credentials: The place, user and password: whatever a refusal depends on.

        Raises:
            Unauthenticated: The credentials were refused lately; the error says what the cloud
                said.
        """
        since, text = self._refused.get(_key(credentials), (0.0, ""))
        left = since + self._pause - time.monotonic()
        if text and left > 0:
            raise Unauthenticated(
                f"{text}; the same password is not sent again for {left:.0f} s, since wrong ones"
                " lock the account"
            )

    def refused(self, credentials: Sequence[str], text: str) -> None:
        """Note that the cloud has refused these credentials, and in which words."""
        self._refused[_key(credentials)] = (time.monotonic(), text)

    def accepted(self, credentials: Sequence[str]) -> None:
        """Note that the cloud accepts these credentials."""
        self._refused.pop(_key(credentials), None)


def _key(credentials: Sequence[str]) -> bytes:
    return hashlib.sha256("\0".join(credentials).encode()).digest()
