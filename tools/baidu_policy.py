"""The policy of the provider `baidu`: the least rights, made from the table of its operations.

`python tools/baidu_policy.py` prints it; `make manifests` writes it to `deploy/baidu/policy.json`,
as a custom policy of IAM takes it. IAM knows no rights of single operations: reading a product, and
changing it, are what it tells apart.
"""

import json
from typing import Any

from proreus.providers.baidu.operations import OPERATIONS


def document() -> dict[str, Any]:
    """Return the policy: what it does not allow is denied."""
    products: dict[str, set[str]] = {}
    for one in OPERATIONS.values():
        products.setdefault(one.product, set()).add(one.right)
    return {
        "accessControlList": [
            {
                "eid": product.removeprefix("bce:"),
                "service": product,
                "region": "*",
                "resource": ["*"],
                "effect": "Allow",
                "permission": sorted(rights),
            }
            for product, rights in sorted(products.items())
        ]
    }


if __name__ == "__main__":
    print(json.dumps(document(), indent=2))
