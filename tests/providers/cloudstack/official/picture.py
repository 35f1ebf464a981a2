"""What is in CloudStack of load balancers, without ids and marks: to compare two managers."""

from typing import Any

from ..emulator.world import World  # noqa: TID252 - pytest imports tests by path


def picture(world: World) -> dict[str, Any]:
    """All that is allocated or made, by names that tell it; empty if there is nothing."""
    rules = {
        one["name"]: {
            **{key: one[key] for key in ("publicport", "privateport", "protocol", "algorithm")},
            "cidrlist": sorted(one["cidrlist"].split()),
            "members": sorted(world.machines[vm]["name"] for vm in world.members.get(id_, ())),
        }
        for id_, one in world.rules.items()
    }
    firewall = sorted(
        (one["protocol"], one["startport"], one["endport"], one["cidrlist"])
        for one in world.firewall.values()
    )
    items = sorted(
        (one["protocol"], one["startport"], one["cidrlist"]) for one in world.acl_items.values()
    )
    addresses = sum(one["state"] != "Free" for one in world.ips.values())
    found = {"rules": rules, "firewall": firewall, "items": items, "addresses": addresses}
    return {key: value for key, value in found.items() if value}
