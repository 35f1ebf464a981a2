"""Define the documents of Photon Controller's API, with the fields that are read."""

from collections.abc import Hashable

import msgspec

from proreus.providers.photon.errors import ApiError


class Vm(msgspec.Struct, frozen=True, rename="camel"):
    """A virtual machine.

    Attributes:
        id: Its id, which is never used again.
        name: Its name, which other machines may have, too.
        state: CREATING, STARTED, SUSPENDED, STOPPED, ERROR or DELETED.
        host: The host that it is on.
        floating_ip: The public address that leads to it.
    """

    id: str
    name: str
    state: str
    host: str | None = None
    floating_ip: str | None = None

    @property
    def shape(self) -> Hashable:
        """The fields that must be unchanged for the machine's known addresses to count."""
        return self.state, self.host, self.floating_ip


class Named(msgspec.Struct, frozen=True):
    """A tenant or a project."""

    id: str
    name: str


class VmPage(msgspec.Struct, frozen=True, rename="camel"):
    """A page of a list of machines; the link leads to the next one."""

    items: tuple[Vm, ...]
    next_page_link: str | None = None


class NamedPage(msgspec.Struct, frozen=True, rename="camel"):
    """A page of a list of tenants or projects."""

    items: tuple[Named, ...]
    next_page_link: str | None = None


class Connection(msgspec.Struct, frozen=True, rename="camel"):
    """A network adapter of a machine; without an address while VMware Tools report none."""

    mac_address: str | None = None
    ip_address: str | None = None


class Networks(msgspec.Struct, frozen=True, rename="camel"):
    """The result of the task that reads a machine's networks, in any order."""

    network_connections: tuple[Connection, ...]


class Step(msgspec.Struct, frozen=True):
    """A step of a task."""

    errors: tuple[ApiError, ...] | None = None


class Task(msgspec.Struct, frozen=True, rename="camel"):
    """A task: QUEUED, STARTED, COMPLETED or ERROR."""

    id: str
    state: str
    steps: tuple[Step, ...] | None = None
    resource_properties: msgspec.Raw = msgspec.Raw(b"null")


class Auth(msgspec.Struct, frozen=True):
    """The answer where tokens are issued, if any are needed."""

    enabled: bool | None = None
    endpoint: str | None = None
    port: int | None = None


class Status(msgspec.Struct, frozen=True):
    """The state of the whole system, such as READY."""

    status: str


class Token(msgspec.Struct, frozen=True):
    """A token of Lightwave, and the seconds until it ends."""

    access_token: str
    expires_in: int | None = None

    def __repr__(self) -> str:
        """Show nothing of the token."""
        return "Token()"
