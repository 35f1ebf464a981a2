"""Pools of load balancers, which can be read, written and deleted by themselves, too."""

import copy
from typing import Any

from .errors import missing
from .kinds import filled
from .store import Resource, Store

POOLS = "backendAddressPools"
KIND = f"Microsoft.Network/loadBalancers/{POOLS}"


def is_pool(kind: str) -> bool:
    return kind.lower() == KIND.lower()


def _balancer(store: Store, path: str) -> tuple[Resource, str]:
    parent, _, name = path.rpartition(f"/{POOLS}/")
    found = store.get(parent)
    if found is None:
        raise missing("Microsoft.Network/loadBalancers", parent.rpartition("/")[2], "")
    return found, name


def _write(store: Store, balancer: Resource, pools: list[Resource]) -> None:
    changed = copy.deepcopy(balancer)
    changed["properties"][POOLS] = pools
    store.put(filled(store, changed, copy.deepcopy(balancer)))


def read(store: Store, path: str) -> Resource:
    balancer, name = _balancer(store, path)
    for one in store.shown(balancer)["properties"][POOLS]:
        if one["name"].lower() == name.lower():
            return {**one, "etag": balancer["etag"]}
    raise missing(KIND, name, "")


def write(store: Store, path: str, body: dict[str, Any]) -> Resource:
    balancer, name = _balancer(store, path)
    given = body.get("properties") or {}
    made = {
        "name": name,
        "properties": {key: one for key, one in given.items() if key != "loadBalancingRules"},
    }
    kept = [one for one in balancer["properties"][POOLS] if one["name"].lower() != name.lower()]
    _write(store, balancer, [*kept, made])
    return read(store, path)


def delete(store: Store, path: str) -> None:
    balancer, name = _balancer(store, path)
    kept = [one for one in balancer["properties"][POOLS] if one["name"].lower() != name.lower()]
    _write(store, balancer, kept)
