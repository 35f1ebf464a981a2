"""Name every request that masters get, with the action that a principal must be allowed there.

The guide's table of rights is made from it, and the emulator of the tests refuses everything else.
"""

from collections.abc import Mapping
from typing import Final

API: Final = "/api/v1"
REGISTRY: Final = "/registrar(1)/registry"

GET_AGENTS: Final = "GET_AGENTS"
GET_MASTER: Final = "GET_MASTER"
GET_FLAGS: Final = "GET_FLAGS"
GET_REGISTRY: Final = "registry"

CALLS: Final[Mapping[str, str]] = {
    GET_AGENTS: "",
    GET_MASTER: "",
    GET_FLAGS: "view_flags",
}
"""Calls of the operator API by the action that must be allowed; "" where none is."""
