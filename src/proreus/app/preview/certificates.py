"""Foresee which serving certificates of kubelets would be approved. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from proreus.app.preview.changes import Change
from proreus.controllers.kubelet_serving.plan import Observed, node_name, plan
from proreus.kube.objects import CertificateSigningRequest


def changes(
    requests: Sequence[CertificateSigningRequest], seen: Mapping[str, Observed], now: datetime
) -> Iterator[Change | str]:
    """Return an approval, or why there is none, for each request that waits."""
    for request in requests:
        name = request.metadata.name
        decided = plan(request, seen[name], None, now)
        if decided is None:
            continue
        about = f"certificatesigningrequest/{name}"
        if decided.patch is None:
            yield f"{about} of {request.spec.username}: not approved: {decided.refusal}"
        else:
            yield Change(about, "change", (f"+ Approved, for node {node_name(request)}",))
