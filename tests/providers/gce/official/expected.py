"""The differences that are meant, each with its row on the page of differences."""

from typing import Final

from ....parity.compare import Meant  # noqa: TID252 - pytest imports tests by path

FAILS: Final = "a node that fails"
STATE: Final = "state"
MARKS: Final = "marks on GCE's forwarding rules"
CHECKS: Final = "the firewall rule of GCE for the health check of nodes"
FINALIZER: Final = "GCE's finalizer on internal Services"
EMPTY: Final = "an instance group of GCE that loses its last host"
PROTOCOLS: Final = "a Service of several protocols on GCE"

MEANT: Final = (
    Meant(FAILS, ("nodes",), "node node-?/condition CloudInitialized", None, "True Initialized"),
    Meant(STATE, ("*",), "service */condition LoadBalancerReady", None, "*"),
    Meant(MARKS, ("*",), "forwardingRules */label proreus-*", None, "*"),
    Meant(CHECKS, ("*",), "firewalls k8s-*-node-http-hc/destinationRanges", "*", None),
    Meant(FINALIZER, ("*",), "service */finalizer gke.networking.io/l4-ilb-v1", "there", None),
    Meant(EMPTY, ("internal hosts: one is out",), "instanceGroups * in us-central1-b/*", "*", "*"),
    Meant(PROTOCOLS, ("external mixed: made",), "service web/condition LoadBalancerPortsError",
          "True LoadBalancerMixedProtocolNotSupported", None),
    Meant(PROTOCOLS, ("external mixed: made",), "service web/ingress", "", "?*"),
    Meant(PROTOCOLS, ("external mixed: made",), "*", None, "*"),
)  # fmt: skip
