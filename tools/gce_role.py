"""The IAM role of the provider `gce`: the least rights, made from the table of its operations.

`python tools/gce_role.py` prints it; `make manifests` writes it to `deploy/gce/role.yaml`, which
`gcloud iam roles create --file` takes.
"""

from typing import Any

import yaml

from proreus.providers.gce.operations import permissions


def role() -> dict[str, Any]:
    """Return the role."""
    return {
        "title": "Kubernetes cloud-controller-manager",
        "description": "What the manager Proreus asks of Compute Engine.",
        "stage": "GA",
        "includedPermissions": list(permissions()),
    }


if __name__ == "__main__":
    print(yaml.safe_dump(role(), sort_keys=False), end="")
