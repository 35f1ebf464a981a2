"""The types of both versions: fields, actions by state, filters and links."""

from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

_NAME: Final = "string CUN! 1-63 a-zA-Z0-9-"
_STATE: Final[Mapping[str, str]] = {
    "accountId": "reference[account] N",
    "created": "date N",
    "description": "string CUN 0-1024",
    "id": "int N",
    "kind": "string N",
    "removed": "date N",
    "state": "enum",
    "uuid": "string N",
    "transitioning": "enum",
    "transitioningMessage": "string N",
    "transitioningProgress": "int N",
}
_SERVICE: Final[Mapping[str, str]] = {
    **_STATE,
    "name": _NAME,
    "externalId": "string CN 0-255",
    "healthState": "string N",
    "fqdn": "string N",
    "metadata": "map[json] CUN",
    "startOnCreate": "boolean CN",
    "upgrade": "serviceUpgrade N",
}
_LAUNCH: Final[Mapping[str, str]] = {
    "imageUuid": "string CN",
    "labels": "map[string] C",
    "healthCheck": "json CN",
    "version": "string",
}
_BALANCER: Final[Mapping[str, str]] = {
    **_SERVICE,
    "scale": "int CU",
    "currentScale": "int",
    "selectorLink": "string CUN",
    "publicEndpoints": "array[publicEndpoint] N",
}
_EXTERNAL: Final[Mapping[str, str]] = {
    **_SERVICE,
    "externalIpAddresses": "array[string] CUN",
    "hostname": "string CUN",
}
_HOST: Final[Mapping[str, str]] = {
    **_STATE,
    "name": "string CUN 0-255",
    "agentState": "string N",
    "hostname": "string",
    "info": "json",
    "labels": "map[string] U",
    "publicEndpoints": "array[publicEndpoint] N",
}
_STACK: Final[Mapping[str, str]] = {
    **_STATE,
    "name": _NAME,
    "externalId": "string CUN 0-128",
    "healthState": "string N",
    "startOnCreate": "boolean CN",
}
_SHARED: Final[Mapping[str, Mapping[str, str]]] = {
    "ipAddress": {**_STATE, "name": "string CUN", "address": "string N"},
    "setting": {"id": "int N", "name": "string N", "value": "string N", "activeValue": "string"},
    "serviceConsumeMap": {
        **_STATE,
        "name": "string N",
        "serviceId": "reference[service] N",
        "consumedServiceId": "reference[service] N",
        "ports": "array[string] N",
    },
    "publicEndpoint": {
        "hostId": "reference[host]",
        "instanceId": "string",
        "ipAddress": "string",
        "port": "int N",
        "serviceId": "reference[service]",
    },
    "serviceUpgrade": {"inServiceStrategy": "inServiceUpgradeStrategy CN"},
    "inServiceUpgradeStrategy": {
        "batchSize": "int CN",
        "intervalMillis": "int CN",
        "launchConfig": "launchConfig CN",
        "previousLaunchConfig": "launchConfig N",
        "startFirst": "boolean C",
    },
    "setServiceLinksInput": {"serviceLinks": "array[serviceLink] CN"},
    "serviceLink": {
        "name": "string CN", "serviceId": "reference[service] C!", "uuid": "string"
    },
    "schema": {"id": "string"},
}  # fmt: skip

TYPES: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "v1": {
        **_SHARED,
        "host": _HOST,
        "environment": _STACK,
        "service": {**_SERVICE, "environmentId": "reference[environment] C!"},
        "loadBalancerService": {
            **_BALANCER,
            "environmentId": "reference[environment] C!",
            "launchConfig": "launchConfig CN",
            "loadBalancerConfig": "json CUN",
        },
        "externalService": {**_EXTERNAL, "environmentId": "reference[environment] C!"},
        "launchConfig": {**_LAUNCH, "ports": "array[string] CN"},
        "setLoadBalancerServiceLinksInput": {"serviceLinks": "array[loadBalancerServiceLink] CN"},
        "loadBalancerServiceLink": {
            "serviceId": "reference[service] C!", "uuid": "string", "ports": "array[string] CN"
        },
    },
    "v2-beta": {
        **_SHARED,
        "host": {**_HOST, "agentIpAddress": "string N", "instanceIds": "array[string]"},
        "stack": {**_STACK, "group": "string CUN", "serviceIds": "array[reference[service]] N"},
        "service": {**_SERVICE, "stackId": "reference[stack] CN"},
        "loadBalancerService": {
            **_BALANCER,
            "stackId": "reference[stack] CN",
            "launchConfig": "launchConfig CUN!",
            "lbConfig": "lbConfig CUN!",
            "linkedServices": "map[reference[service]] N",
        },
        "externalService": {**_EXTERNAL, "stackId": "reference[stack] CN"},
        "launchConfig": {**_LAUNCH, "ports": "array[string] CUN"},
        "lbConfig": {
            "config": "string CN",
            "portRules": "array[portRule] C",
            "certificateIds": "array[string] CN",
            "defaultCertificateId": "string CN",
            "stickinessPolicy": "json CN",
        },
        "portRule": {
            "backendName": "string CN",
            "hostname": "string CN",
            "path": "string CN",
            "priority": "int CN 1-",
            "protocol": "enum C http,tcp,https,tls,sni,udp",
            "selector": "string CN",
            "serviceId": "reference[service] CN",
            "sourcePort": "int CN! 1-65535",
            "targetPort": "int CN 1-65535",
        },
    },
}  # fmt: skip

PLURALS: Final = {"ipAddress": "ipAddresses"}
LINKS: Final[Mapping[str, frozenset[str]]] = {
    "host": frozenset({"ipAddresses"}),
    "loadBalancerService": frozenset({"consumedservices", "consumedbyservices"}),
    "externalService": frozenset({"consumedservices", "consumedbyservices"}),
    "service": frozenset({"consumedservices", "consumedbyservices"}),
}
"""What is joined or followed, for each type."""
MADE: Final = frozenset({"environment", "stack", "loadBalancerService", "externalService"})
"""Types whose objects clients make."""
SERVICES: Final = frozenset({"loadBalancerService", "externalService", "service"})

_ALL: Final = (
    "inactive registering active activating updating-inactive updating-active upgrading"
    " canceling-upgrade rolling-back deactivating requested canceled-upgrade upgraded"
    " finishing-upgrade restarting canceling-rollback canceled-rollback"
)
_ACTIONS: Final[Mapping[str, str]] = {
    "activate": "inactive restarting",
    "deactivate": "restarting active activating updating-inactive updating-active",
    "update": "inactive active updating-active finishing-upgrade activating canceling-upgrade"
    " upgrading rolling-back",
    "remove": _ALL,
    "upgrade": "active inactive",
    "cancelupgrade": "upgrading finishing-upgrade",
    "rollback": "upgraded canceled-upgrade",
    "finishupgrade": "upgraded",
    "setservicelinks": f"{_ALL} removing",
}
_V1_ACTIONS: Final = {"finishupgrade": "upgraded canceled-upgrade canceled-rollback"}
_V2_ACTIONS: Final = {
    "upgrade": "active activating inactive updating-active",
    "rollback": "upgrading upgraded canceled-upgrade",
}
OF_STACKS: Final = {"update": "active", "remove": "requested active activating error erroring"}


def actions(version: str, type_: str) -> dict[str, frozenset[str]]:
    """The actions of a type, each with the states in which it is offered."""
    if type_ in {"stack", "environment"}:
        found = dict(OF_STACKS)
    elif type_ in SERVICES:
        found = {**_ACTIONS, **(_V1_ACTIONS if version == "v1" else _V2_ACTIONS)}
        if type_ == "externalService":
            del found["setservicelinks"]
    else:
        return {}
    return {name: frozenset(states.split()) for name, states in found.items()}


def action_input(version: str, type_: str, name: str) -> str | None:
    """The type of what an action is given."""
    if name == "setservicelinks":
        of_balancer = version == "v1" and type_ == "loadBalancerService"
        return "setLoadBalancerServiceLinksInput" if of_balancer else "setServiceLinksInput"
    return "serviceUpgrade" if name == "upgrade" else None


def plural(type_: str) -> str:
    return PLURALS.get(type_, f"{type_}s")


class Field:
    """A field, by a line such as `string CUN! 1-63 a-zA-Z0-9-`.

    C: can be given when the object is made, U: when it is changed, N: may be null, !: is required.
    """

    def __init__(self, line: str) -> None:
        self.type, *rest = line.split()
        flags = rest[0] if rest else ""
        self.create, self.update, self.nullable = "C" in flags, "U" in flags, "N" in flags
        self.required = flags.endswith("!")
        bounds = rest[1] if len(rest) > 1 else ""
        self.options = bounds.split(",") if "," in bounds else None
        low, _, high = ("", "", "") if self.options else bounds.partition("-")
        self.low, self.high = int(low) if low else None, int(high) if high else None
        self.letters = rest[2] if len(rest) > 2 else None

    def described(self) -> Json:
        found: Json = {
            "type": self.type, "create": self.create, "update": self.update,
            "nullable": self.nullable, "required": self.required, "description": None,
        }  # fmt: skip
        is_text = self.type == "string"
        if self.low is not None:
            found["minLength" if is_text else "min"] = self.low
        if self.high is not None:
            found["maxLength" if is_text else "max"] = self.high
        if self.options:
            found |= {"options": self.options}
        if self.letters:
            found["validChars"] = self.letters
        return found


FIELDS: Final = {
    version: {
        type_: {name: Field(line) for name, line in fields.items()} for type_, fields in of.items()
    }
    for version, of in TYPES.items()
}

_FILTERED: Final = frozenset(
    {
        "accountId", "address", "consumedServiceId", "created", "description", "environmentId",
        "externalId", "id", "kind", "name", "removed", "serviceId", "stackId", "state", "uuid",
        "value",
    }
)  # fmt: skip
_MODIFIERS: Final = ["eq", "ne", "null", "notnull"]


def filters(version: str, type_: str) -> frozenset[str]:
    return frozenset(FIELDS[version][type_]) & _FILTERED


def described(version: str, type_: str, base: str) -> Json:
    """The schema of a type as Rancher shows it."""
    has_list = type_ in {*MADE, "host", "ipAddress", "setting", "serviceConsumeMap", "service"}
    links = {"self": f"{base}/schemas/{type_.lower()}"}
    if has_list:
        links["collection"] = f"{base}/{plural(type_).lower()}"
    found = actions(version, type_)
    return {
        "id": type_,
        "type": "schema",
        "links": links,
        "actions": {},
        "pluralName": plural(type_),
        "resourceFields": {
            name: one.described() for name, one in FIELDS[version][type_].items()
        },
        "collectionFilters": {
            name: {"modifiers": _MODIFIERS} for name in sorted(filters(version, type_))
        }
        if has_list
        else {},
        "includeableLinks": sorted(LINKS.get(type_, ())),
        "resourceActions": {
            name: {"input": action_input(version, type_, name), "output": _output(type_)}
            for name in found
        },
        "collectionActions": {},
        "collectionFields": {},
        "resourceMethods": ["GET", "PUT", "DELETE"] if type_ in MADE else ["GET"],
        "collectionMethods": ["GET", "POST"] if type_ in MADE else ["GET"],
    }  # fmt: skip


def _output(type_: str) -> str:
    return "service" if type_ in SERVICES else type_
