"""Remembers which credentials a vCenter has refused, so that an account is not locked.

By default Single Sign-On locks an account after five wrong passwords within three minutes. The
framework tries a cloud that refuses again within seconds, with a new provider each time; so this
is remembered in the process.
"""

import hashlib
import time
from typing import Final

from proreus.cloudprovider.errors import Unauthenticated
from proreus.providers.vsphere.config import VCenter

PAUSE: Final = 90.0
"""Seconds until refused credentials are sent again: twice within three minutes."""


class Logins:
    """A memory of refused credentials; none of them can be read in it."""

    def __init__(self) -> None:
        """Begin with nothing refused."""
        self._refused: dict[bytes, tuple[float, str]] = {}

    def check(self, vcenter: VCenter) -> None:
        """Let credentials pass that have not been refused lately.

        Raises:
            Unauthenticated: They have been; with what the vCenter said.
        """
        since, text = self._refused.get(_key(vcenter), (0.0, ""))
        left = since + PAUSE - time.monotonic()
        if text and left > 0:
            raise Unauthenticated(
                f"{text}; the same password is not sent again for {left:.0f} s, since wrong ones"
                " lock the account"
            )

    def refused(self, vcenter: VCenter, text: str) -> None:
        """Note that the vCenter has refused these credentials, and in which words."""
        self._refused[_key(vcenter)] = (time.monotonic(), text)

    def accepted(self, vcenter: VCenter) -> None:
        """Note that these credentials serve."""
        self._refused.pop(_key(vcenter), None)


LOGINS: Final = Logins()
"""Those of this process."""


def _key(vcenter: VCenter) -> bytes:
    parts = (vcenter.server, str(vcenter.port), vcenter.user, vcenter.password)
    return hashlib.sha256("\0".join(parts).encode()).digest()
