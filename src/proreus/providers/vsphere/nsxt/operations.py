"""Name every kind of object of NSX-T's policy API, with its methods.

The guide's table of requests is made from it.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

Document = Mapping[str, Any]
"""An object as NSX-T describes it."""

ROOT: Final = "policy/api/v1/infra"

SERVICES: Final = "lb-services"
SERVERS: Final = "lb-virtual-servers"
POOLS: Final = "lb-pools"
MONITORS: Final = "lb-monitor-profiles"
APP_PROFILES: Final = "lb-app-profiles"
PERSISTENCE: Final = "lb-persistence-profiles"
GROUPS: Final = "groups"
IP_POOLS: Final = "ip-pools"
ALLOCATIONS: Final = "ip-allocations"
ROUTES: Final = "static-routes"
REALIZED: Final = "realized-entities"


class Kind(msgspec.Struct, frozen=True):
    """A kind of objects.

    Attributes:
        path: The path below `/policy/api/v1/infra`, with a place for the id of the object that
            holds them.
        methods: The methods that are used: `list` is a GET of all objects, the others are those of
            HTTP.
    """

    path: str
    methods: tuple[str, ...]


_ALL: Final = ("list", "PUT", "DELETE")

KINDS: Final = {
    SERVICES: Kind("lb-services", _ALL),
    SERVERS: Kind("lb-virtual-servers", _ALL),
    POOLS: Kind("lb-pools", _ALL),
    MONITORS: Kind("lb-monitor-profiles", _ALL),
    APP_PROFILES: Kind("lb-app-profiles", ("list",)),
    PERSISTENCE: Kind("lb-persistence-profiles", _ALL),
    GROUPS: Kind("domains/default/groups", ("GET", *_ALL)),
    IP_POOLS: Kind("ip-pools", ("list",)),
    ALLOCATIONS: Kind("ip-pools/{}/ip-allocations", _ALL),
    ROUTES: Kind("tier-1s/{}/static-routes", _ALL),
    REALIZED: Kind("realized-state/realized-entities", ("list",)),
}
"""The kinds by the names of their requests."""


class Place(msgspec.Struct, frozen=True):
    """A place where objects of one kind are.

    Attributes:
        kind: The name of the kind in the table.
        within: The id of the object that holds them, such as of a pool; "" for kinds that stand
            alone.
    """

    kind: str
    within: str = ""

    @property
    def url(self) -> str:
        """The URL below the endpoint."""
        return f"{ROOT}/{KINDS[self.kind].path.format(quote(self.within, safe=''))}"

    @property
    def path(self) -> str:
        """The beginning of the objects' paths, as they refer to one another."""
        return f"/infra/{KINDS[self.kind].path.format(self.within)}"
