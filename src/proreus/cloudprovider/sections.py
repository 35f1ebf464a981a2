"""Sections of ours that the cloud-configs of several clouds have.

Section [Tenants] is in `ownership`, with what it decides.
"""

from collections.abc import Iterator
from datetime import timedelta

from proreus.cloudprovider.config import ConfigSection


class Client(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Client]: how the APIs are reached.

    Attributes:
        timeout: How long to wait for a connection, and for an answer.
        ca_file: A file of CA certificates, in the place of the system's.
    """

    timeout: timedelta = timedelta(seconds=30)
    ca_file: str = ""

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if self.timeout <= timedelta():
            yield "timeout: must be more than 0, such as 30s"
