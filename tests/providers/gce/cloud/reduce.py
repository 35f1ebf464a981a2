"""Reduces Google's description of the Compute API to what this cloud offers.

    python -m tests.providers.gce.cloud.reduce compute-api.json

The description ("discovery document") is in the Go module google.golang.org/api, in compute/v1.
`spec.json` keeps of it the methods below and the schemas that they need, without descriptions.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

SPEC: Final = Path(__file__).with_name("spec.json")

METHODS: Final = {
    "addresses": ("delete", "get", "insert", "list", "setLabels"),
    "disks": ("get",),
    "firewalls": ("delete", "get", "insert", "list", "patch", "update"),
    "forwardingRules": ("delete", "get", "insert", "list", "patch", "setLabels"),
    "globalOperations": ("get", "wait"),
    "healthChecks": ("delete", "get", "insert", "list", "update"),
    "httpHealthChecks": ("delete", "get", "insert", "list", "update"),
    "instanceGroups": (
        *("addInstances", "aggregatedList", "delete", "get", "insert", "list"),
        *("listInstances", "removeInstances"),
    ),
    "instances": ("aggregatedList", "get", "list", "updateNetworkInterface"),
    "networkEndpointGroups": (
        *("aggregatedList", "attachNetworkEndpoints", "delete", "detachNetworkEndpoints", "get"),
        *("insert", "list", "listNetworkEndpoints"),
    ),
    "networks": ("get",),
    "projects": ("get", "setCommonInstanceMetadata"),
    "regionBackendServices": ("delete", "get", "insert", "list", "patch", "update"),
    "regionDisks": ("get",),
    "regionHealthChecks": ("delete", "get", "insert", "list", "update"),
    "regionOperations": ("get", "wait"),
    "routes": ("delete", "get", "insert", "list"),
    "subnetworks": ("get", "list"),
    "targetPools": (
        *("addHealthCheck", "addInstance", "delete", "get", "insert", "list"),
        *("removeHealthCheck", "removeInstance"),
    ),
    "zoneOperations": ("get", "wait"),
    "zones": ("list",),
}
"""The methods that there are, by resource."""

_KEPT_OF_PARAMETERS: Final = ("type", "format", "pattern", "required", "location", "repeated",
                              "minimum", "maximum", "enum")  # fmt: skip
_KEPT_OF_SCHEMAS: Final = ("$ref", "additionalProperties", "enum", "format", "items", "pattern",
                           "properties", "type")  # fmt: skip


def reduced(document: dict[str, Any]) -> dict[str, Any]:
    """What is kept of the document."""
    methods: dict[str, Any] = {}
    for resource, names in METHODS.items():
        for name in names:
            method = document["resources"][resource]["methods"][name]
            methods[method["id"]] = {
                "method": method["httpMethod"],
                "path": method["flatPath"],
                "parameters": {
                    key: {kept: one[kept] for kept in _KEPT_OF_PARAMETERS if kept in one}
                    for key, one in method["parameters"].items()
                },
                "request": method.get("request", {}).get("$ref", ""),
                "response": method["response"]["$ref"],
            }
    schemas: dict[str, Any] = {}
    for method in methods.values():
        for name in (method["request"], method["response"]):
            _keep(document["schemas"], name, schemas)
    return {"revision": document["revision"], "methods": methods, "schemas": schemas}


def _keep(every: dict[str, Any], name: str, kept: dict[str, Any]) -> None:
    if name and name not in kept:
        kept[name] = _schema(every[name])
        for other in _references(kept[name]):
            _keep(every, other, kept)


def _schema(whole: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {key: whole[key] for key in _KEPT_OF_SCHEMAS if key in whole}
    if "properties" in found:
        found["properties"] = {key: _schema(one) for key, one in whole["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = _schema(whole[key])
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(name := schema.get("$ref"), str):
            yield name
        for one in schema.values():
            yield from _references(one)


if __name__ == "__main__":
    text = json.dumps(reduced(json.loads(Path(sys.argv[1]).read_text())), separators=(",", ":"))
    SPEC.write_text(text.replace('},"', '},\n"') + "\n")
