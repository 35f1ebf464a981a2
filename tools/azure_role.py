"""The custom role of the provider `azure`: the least rights, made from the table of its operations.

`python tools/azure_role.py` prints it; `make manifests` writes it to `deploy/azure/role.json`.
"""

import json

from proreus.providers.azure.operations import JOINS, OPERATIONS, POLL, ROWS


def actions() -> list[str]:
    """Return the actions that the provider needs the right to."""
    called = {one.action for found in OPERATIONS.values() for one in found}
    joined = {one for found in JOINS.values() for one in found}
    shown = {one for found in ROWS.values() for one in found}
    return sorted({*called, *joined, *shown, *POLL})


def document() -> str:
    """Return the role, as it is written to its file; the operator names the subscription."""
    role = {
        "Name": "Proreus cloud-controller-manager",
        "IsCustom": True,
        "Description": "What Proreus needs to manage nodes, load balancers and routes.",
        "Actions": actions(),
        "NotActions": [],
        "AssignableScopes": ["/subscriptions/SUBSCRIPTION_ID"],
    }
    return json.dumps(role, indent=2) + "\n"


if __name__ == "__main__":
    print(document(), end="")
