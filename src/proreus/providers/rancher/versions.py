"""Define the two versions of Rancher's API, and the words in which they differ. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class Version(msgspec.Struct, frozen=True):
    """A version of the API.

    Attributes:
        name: The part of the URL that names the version.
        stacks: The name of the list of stacks.
        stack_id: The field that names a service's stack.
        has_rules: Whether a load balancer says itself which port leads where, and is changed in
            place. In other versions its published ports and links say it, and only an upgrade
            changes the ports.
    """

    name: str
    stacks: str
    stack_id: str
    has_rules: bool

    def is_described_by(self, schema: Mapping[str, Any]) -> bool:
        """Tell whether the schema of a load balancer service is one of this version."""
        fields = schema.get("resourceFields")
        return (
            schema.get("type") == "schema"
            and isinstance(fields, dict)
            and self.stack_id in fields
            and ("lbConfig" in fields) is self.has_rules
        )


V2: Final = Version("v2-beta", "stacks", "stackId", has_rules=True)
"""Rancher 1.2 and later."""
V1: Final = Version("v1", "environments", "environmentId", has_rules=False)
"""Rancher 1.0 and 1.1; later ones have it beside the other, without rules."""
NEWEST_FIRST: Final = (V2, V1)
"""The order in which a server is asked."""
