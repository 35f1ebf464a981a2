"""Remember which credentials vCenters have refused.

By default Single Sign-On locks an account after five wrong passwords within three minutes.
"""

from typing import Final

from proreus.cloudprovider.logins import Logins

PAUSE: Final = 90.0
"""Seconds until refused credentials are sent again: twice within three minutes."""

LOGINS: Final = Logins(PAUSE)
"""The logins of this process."""
