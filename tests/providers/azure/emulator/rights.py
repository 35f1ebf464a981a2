"""What a caller needs the right to: the action of a request, and those of what a body names."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .errors import ArmError

if TYPE_CHECKING:
    from .server import Place

_VERBS = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}
_ID = re.compile(r"/subscriptions/[^/]+/resourcegroups/[^/]+/providers/(.+)", re.IGNORECASE)
_JOINED = {
    "microsoft.network/publicipaddresses": "Microsoft.Network/publicIPAddresses/join/action",
    "microsoft.network/publicipprefixes": "Microsoft.Network/publicIPPrefixes/join/action",
    "microsoft.network/virtualnetworks/subnets":
        "Microsoft.Network/virtualNetworks/subnets/join/action",
    "microsoft.network/virtualnetworks": "Microsoft.Network/virtualNetworks/joinLoadBalancer/action",
    "microsoft.network/networksecuritygroups": "Microsoft.Network/networkSecurityGroups/join/action",
    "microsoft.network/loadbalancers/backendaddresspools":
        "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
    "microsoft.network/loadbalancers/frontendipconfigurations":
        "Microsoft.Network/loadBalancers/frontendIPConfigurations/join/action",
}  # fmt: skip


def check_right(actions: set[str] | None, method: str, place: "Place") -> None:
    """Refuse a request whose action the caller's role does not have."""
    check_action(actions, f"{place.kind}/{_VERBS[method]}", place.path)


def check_action(actions: set[str] | None, action: str, scope: str) -> None:
    """Refuse an action that the caller's role does not have."""
    if actions is not None and action.lower() not in {one.lower() for one in actions}:
        raise ArmError(
            403,
            "AuthorizationFailed",
            f"The client does not have authorization to perform action '{action}' over scope"
            f" '{scope}'.",
        )


def check_joins(actions: set[str] | None, body: dict[str, Any]) -> None:
    """Refuse a body that names what the caller must not use."""
    if actions is None:
        return
    known = {one.lower() for one in actions}
    own = str(body["id"]).lower()
    for id_ in _ids(body["properties"]):
        if id_.lower().startswith(own):
            continue
        found = _ID.fullmatch(id_)
        kind = "/".join(found[1].split("/")[:1] + found[1].split("/")[1::2]) if found else ""
        action = _JOINED.get(kind.lower())
        if action is not None and action.lower() not in known:
            raise ArmError(
                403, "LinkedAuthorizationFailed",
                f"The client does not have permission to perform action '{action}' on the linked"
                f" scope '{id_}'.",
            )  # fmt: skip


def _ids(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            if key == "id" and isinstance(one, str):
                yield one
            else:
                yield from _ids(one)
    elif isinstance(value, list):
        for one in value:
            yield from _ids(one)
