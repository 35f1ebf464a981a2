"""The commands of the emulated CloudStack about stickiness policies of load balancer rules."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from .refusals import Refusal
from .world import Json, World, map_of

Parameters = Mapping[str, str]
_TIME = re.compile(r"\d+[dhms]?")


def _policies(world: World, parameters: Parameters) -> list[Json]:
    if not parameters.keys() & {"id", "lbruleid"}:
        raise Refusal(431, "load balancer rule ID and stickiness policy ID can't be null")
    rule = world.the("rules", parameters["lbruleid"], "lbruleid")
    found = [one for one in world.policies.values() if one["lbruleid"] == rule["id"]]
    return [_described(rule["id"], found)]


def _described(rule: str, policies: list[Json]) -> Json:
    shown = [{k: v for k, v in one.items() if k != "lbruleid"} for one in policies]
    return {"lbruleid": rule, "stickinesspolicy": shown}


def _methods(world: World, rule: Json) -> dict[str, set[str]]:
    """The methods that the rule's network has, with their parameters, by names in small letters."""
    services = world.networks[rule["networkid"]]["service"]
    told = {
        of["name"]: of["value"]
        for one in services
        if one["name"] == "Lb"
        for of in one["capability"]
    }
    return {
        one["methodname"].lower(): {of["paramname"] for of in one["paramlist"]}
        for one in json.loads(told.get("SupportedStickinessMethods", "[]"))
    }


def _create(world: World, parameters: Parameters) -> Json:
    rule = world.the("rules", parameters["lbruleid"], "lbruleid")
    if rule["state"] == "Revoke":
        raise Refusal(431, f"Failed: LB rule: {rule['id']} is in deleting state")
    methods = _methods(world, rule)
    if parameters["methodname"].lower() not in methods:
        raise Refusal(431, f"Failed to match Stickiness method name for LB rule:{rule['id']}")
    given = map_of(parameters, "param", "name")
    if unknown := given.keys() - methods[parameters["methodname"].lower()]:
        raise Refusal(431, f"Failed : Stickiness policy does not support param name :{unknown}")
    if "expire" in given and not _TIME.fullmatch(given["expire"]):
        raise Refusal(431, f"Failed LB in validation rule id: {rule['id']} Cause: expire")
    there = [id_ for id_, one in world.policies.items() if one["lbruleid"] == rule["id"]]
    if len(there) > 1:
        raise Refusal(431, "Failed to create Stickiness policy: Already two policies attached")
    id_ = world.new_id()
    world.policies[id_] = {
        "id": id_, "lbruleid": rule["id"], "name": parameters["name"], "state": "Active",
        "description": parameters.get("description", ""), "methodname": parameters["methodname"],
        "params": given, "fordisplay": True,
    }  # fmt: skip

    def effect() -> Json:
        for old in there:  # a rule has one: the last
            world.remove("policies", old)
        return {"stickinesspolicies": _described(rule["id"], [world.policies[id_]])}

    return world.work("createLBStickinessPolicy", effect, id=id_)


def _delete(world: World, parameters: Parameters) -> Json:
    world.the("policies", parameters["id"])
    return world.work(
        "deleteLBStickinessPolicy", lambda: world.remove("policies", parameters["id"])
    )


STICKINESS: Final[Mapping[str, Callable[[World, Parameters], Any]]] = {
    "createLBStickinessPolicy": _create,
    "deleteLBStickinessPolicy": _delete,
    "listLBStickinessPolicies": _policies,
}
