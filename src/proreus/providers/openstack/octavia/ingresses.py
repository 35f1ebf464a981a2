"""Read for which Ingress octavia-ingress-controller has made an object. Pure.

An Ingress and a Service may have one name, so it is called as no Service can be.
"""

import re

from proreus.cloudprovider.ownership import Owner

_NAME = re.compile(r"kube_ingress_(?P<cluster>.*)_(?P<namespace>[^_]+)_(?P<name>[^_]+)")
_TEXT = re.compile(
    r"Floating IP for Kubernetes ingress (?P<name>[^ ]+) in namespace (?P<namespace>[^ ]+)"
    r" from cluster (?P<cluster>.*)"
)


def ingress_in(text: str) -> Owner | None:
    """Return the Ingress in a load balancer's name or a floating IP's description, or None."""
    found = _NAME.fullmatch(text) or _TEXT.fullmatch(text)
    if found is None:
        return None
    return Owner("", found["cluster"], found["namespace"], f"{found['name']} (an Ingress)")
