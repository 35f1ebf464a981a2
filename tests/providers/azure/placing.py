"""What tests of several load balancers share: pods of a Service."""

from typing import Any


def slice_(service: str, node: str) -> dict[str, Any]:
    """A ready pod of a Service on this node, as its controller would write it."""
    meta = {"name": f"{service}-1", "labels": {"kubernetes.io/service-name": service}}
    pod = {"addresses": ["10.244.0.9"], "conditions": {"ready": True}, "nodeName": node}
    ports = [{"name": "http", "port": 80}]
    return {"metadata": meta, "addressType": "IPv4", "endpoints": [pod], "ports": ports}
