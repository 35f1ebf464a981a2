"""Find obstacles to the provider `local` in the cluster. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import yaml

from proreus.app.doctor.observed import Finding, Observed, Workload
from proreus.app.doctor.speakers import is_bgp

KUBE_PROXY: Final = "kube-proxy"
"""The name of kube-proxy's ConfigMap, as kubeadm makes it."""
_KEY: Final = "config.conf"
_OTHERS: Final[Mapping[str, tuple[str, str, str]]] = {
    "metallb": (
        "metallb-beside",
        "MetalLB balances loads, too: both give Services addresses, and announce them",
        "delete its Deployment and DaemonSet: Services keep their addresses. Or give it --lb-class",
    ),
    "servicelb": (
        "servicelb-beside",
        "k3s' own load balancer takes the Services, too",
        "run every server of k3s with --disable=servicelb",
    ),
}
_OF_K3S: Final = "svccontroller.k3s.cattle.io/svcname"
_CLASS: Final = "--lb-class"
_LABELS: Final = ("app.kubernetes.io/name", "app")


class _IPVS(msgspec.Struct, frozen=True, rename="camel"):
    strict_arp: bool | None = msgspec.field(default=None, name="strictARP")


class _ProxyConfig(msgspec.Struct, frozen=True):
    """The part of a KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) that matters."""

    mode: str | None = None
    ipvs: _IPVS | None = None


def balancer_of(workload: Workload) -> str:
    """Return which other load balancer a DaemonSet is a part of, or ""."""
    labels = workload.metadata.labels
    if _OF_K3S in labels:
        return "servicelb"
    return "metallb" if "metallb" in {labels.get(one) for one in _LABELS} else ""


def findings(observed: Observed) -> Iterator[Finding]:
    """Find everything that keeps the provider from giving Services working addresses."""
    others = {balancer_of(one): one.metadata for one in observed.balancers if not _has_class(one)}
    for other, meta in others.items() if observed.classes.classless else ():
        check, problem, remedy = _OTHERS[other]
        about = f"daemonset/{meta.namespace}/{meta.name}"
        yield Finding(check, about, problem, "the DaemonSet is there", remedy)
    if observed.kube_proxy is not None and not is_bgp(observed):
        yield from _answering(observed.kube_proxy)


def _has_class(workload: Workload) -> bool:
    """Tell whether a load balancer leaves Services without a class to us."""
    containers = workload.spec.template.spec.containers
    return any(text.startswith(_CLASS) for one in containers for text in one.args)


def _answering(data: Mapping[str, str]) -> Iterator[Finding]:
    """Find that nodes answer ARP for addresses of Services in the gateway's place."""
    try:
        config = msgspec.convert(yaml.safe_load(data.get(_KEY, "")) or {}, _ProxyConfig)
    except (yaml.YAMLError, msgspec.ValidationError):
        return  # kube-proxy itself complains about it
    if config.mode == "ipvs" and not (config.ipvs is not None and config.ipvs.strict_arp):
        yield Finding(
            "strict-arp-off",
            f"configmap/kube-system/{KUBE_PROXY}",
            "every node answers ARP for the load balancers' addresses, not the gateway alone",
            "mode is ipvs, and ipvs.strictARP is not true",
            "set ipvs.strictARP: true there, and restart kube-proxy: "
            f"`kubectl -n kube-system rollout restart daemonset/{KUBE_PROXY}`",
        )
