"""The differences that are meant, each with its row on the page of differences."""

from typing import Final

from .compare import Meant

FAILS: Final = "a node that fails"
ELSEWHERE: Final = "a machine of another cloud"
BETA: Final = "beta labels"
TOPOLOGY: Final = "zone and region later"
TYPE: Final = "instance type later"
NO_TAINT: Final = "a node that never had the taint"
GOING: Final = "a node that is being deleted"
LABELS: Final = "labels of the cloud's own"
DELETION: Final = "deletion"
SHUTDOWN: Final = "the shutdown taint"
OUTSIDE: Final = "a CIDR outside `--cluster-cidr`"
NO_ID: Final = "a route to a node without provider id"
PLUGIN: Final = "`NetworkUnavailable`"
STATE: Final = "state"
EVENTS: Final = "events"
UNKNOWN: Final = "a Ready node that the cloud does not know"
CLEANUP: Final = "clean-up"
CLEANUP_FAILS: Final = "a clean-up that fails"
PUT_BACK: Final = "a status or finalizer that somebody takes away"
ADDRESS: Final = "a node's address changes"
IMPOSSIBLE: Final = "a Service without node ports"

CLOUD: Final = "condition CloudInitialized"
READY: Final = "condition LoadBalancerReady"
UNINITIALISED: Final = "taint node.cloudprovider.kubernetes.io/uninitialized:NoSchedule"
NODE_EVENT: Final = "from cloud-node-controller: v1 no namespace <uid 1 of a>"
SERVICE_EVENT: Final = "from service-controller: v1 default <uid 1 of web>"
ROUTE_EVENT: Final = "from route_controller: v1 no namespace <uid 1 of a>"
KEPT: Final = ("never-there", "never-there-by-id", "elsewhere", "no-id")
NEVER: Final = ("no-machine", "never-there", "never-there-by-id", "never-initialised",
                "no-machine-yet")  # fmt: skip
UNTAINTED: Final = ("no-taint", "no-taint-but-id")


def told(why: str, reason: str, *scripts: str, about: str = "node a") -> Meant:
    """A Warning that only we write."""
    event = NODE_EVENT if about == "node a" else SERVICE_EVENT
    return Meant(why, scripts, f"event about {about}/Warning {reason} <1>", None, event)


NODES: Final = (
    Meant(FAILS, ("*",), f"node ?/{CLOUD}", None, "True Initialized: *"),
    Meant(FAILS, NEVER, f"node a/{CLOUD}", None, "False InstanceNotFound: *"),
    told(FAILS, "InstanceNotFound", *NEVER, "machine-later", "initialised-late"),
    Meant(FAILS, ("node-ip-odd", "node-ip-alike"), f"node a/{CLOUD}", None,
          "False ProvidedNodeIPInvalid: *"),
    told(FAILS, "ProvidedNodeIPInvalid", "node-ip-odd", "node-ip-alike"),
    Meant(FAILS, ("node-ip-unknown",), f"node a/{CLOUD}", None,
          "False ProvidedNodeIPMismatch: *"),
    told(FAILS, "ProvidedNodeIPMismatch", "node-ip-unknown"),
    Meant(FAILS, ("odd-provider-id",), f"node a/{CLOUD}", None, "False CloudUnavailable: *"),
    told(FAILS, "CloudUnavailable", "odd-provider-id", "machines-fail"),
    Meant(ELSEWHERE, ("other-region",), f"node a/{CLOUD}", None, "False NotOwned: *"),
    told(ELSEWHERE, "NotOwned", "other-region"),
    Meant(BETA, ("zone-edited",), "node a/label *zone", "sim-1a", "by-hand"),
    Meant(BETA, ("zone-edited-beta",), "node a/label *zone", "by-hand", "sim-1a"),
    Meant(TOPOLOGY, ("new-zone", "zone-edited"), f"node a/{CLOUD}", None,
          "True TopologyDiffers: *"),
    told(TOPOLOGY, "TopologyDiffers", "new-zone", "zone-edited"),
    Meant(TYPE, ("new-type",), "node a/label *instance-type", "sim.large", "sim.huge"),
    Meant(NO_TAINT, UNTAINTED, "node a/label node.kubernetes.io/instance-type", None, "sim.large"),
    Meant(NO_TAINT, UNTAINTED, f"node a/{CLOUD}", None, "True TopologyDiffers: *"),
    told(NO_TAINT, "TopologyDiffers", *UNTAINTED),
    Meant(GOING, ("held-while-new",), f"node a/{UNINITIALISED}", "(removed)", None),
    Meant(LABELS, ("more-labels",), "node a/annotation proreus/additional-labels", None,
          "example.com/room,rack"),
)  # fmt: skip

DELETING: Final = "event about node a/Normal DeletingNode <1>"
LIFECYCLE: Final = (
    Meant(DELETION, KEPT, "node a", "gone", "there"),
    Meant(DELETION, KEPT, "node a/taint node.kubernetes.io/not-ready:NoSchedule", None, ""),
    Meant(DELETION, KEPT, DELETING, "*", None),
    Meant(GOING, ("held",), DELETING, "*", None),
    Meant(SHUTDOWN, ("back-unready",), "node a/taint *shutdown:NoSchedule", "", None),
    Meant(
        UNKNOWN,
        ("ended-ready",),
        "event about node a/Warning InstanceUnknown <1>",
        None,
        "from cloud-node-lifecycle-controller: v1 no namespace <uid 1 of a>",
    ),
    Meant(UNKNOWN, ("ended-ready",), "node a/annotation proreus.io/unknown-to-cloud", None, "true"),
)

NETWORK: Final = "node a/condition NetworkUnavailable"
FAILED_ROUTE: Final = "event about node a/Warning FailedToCreateRoute <1>"
ROUTES: Final = (
    Meant(OUTSIDE, ("outside",), "route <CIDR outside>", "to a, active", None),
    Meant(OUTSIDE, ("outside",), NETWORK, "False RouteCreated: *", "True NoRouteCreated: *"),
    Meant(OUTSIDE, ("outside",), FAILED_ROUTE, None, ROUTE_EVENT),
    Meant(NO_ID, ("no-machine-yet",), NETWORK, "True NoRouteCreated: *", None),
    Meant(NO_ID, ("no-machine-yet",), FAILED_ROUTE, ROUTE_EVENT, None),
    Meant(PLUGIN, ("plugin",), NETWORK, "False RouteCreated: *", None),
    Meant(PLUGIN, ("plugin-in-the-way",), NETWORK, "True NoRouteCreated: *", None),
)

FAILED: Final = "event about service web/Warning SyncLoadBalancerFailed <1>"
BAD_CLEANUP: Final = ("delete-fails", "delete-keeps-failing", "listener-fails")
SERVICES: Final = (
    Meant(STATE, ("*",), f"service */{READY}", None, "True Ensured: Ensured load balancer"),
    Meant(STATE, ("pool-taken",), f"service web/{READY}", None, "False CloudError: *"),
    Meant(STATE, ("delete-keeps-failing",), f"service web/{READY}", None,
          "False DeleteCloudError: *"),
    Meant(STATE, ("no-node-ports",), f"service web/{READY}", None, "False InvalidRequest: *"),
    Meant(STATE, ("all-nodes-go",), f"service web/{READY}", None, "False NoHosts: *"),
    Meant(EVENTS, ("*",), "event about service web/Normal UpdatedLoadBalancer <1>", SERVICE_EVENT,
          None),
    Meant(CLEANUP, ("pool-taken-deleted",), "event about service web/Normal DeletingLoadBalancer <1>",
          None, SERVICE_EVENT),
    Meant(CLEANUP_FAILS, BAD_CLEANUP, FAILED, SERVICE_EVENT, None),
    told(CLEANUP_FAILS, "DeleteLoadBalancerFailed", *BAD_CLEANUP, about="service web"),
    Meant(PUT_BACK, ("finalizer-removed",), "service web/finalizers", None,
          "service.kubernetes.io/load-balancer-cleanup"),
    Meant(PUT_BACK, ("status-changed",), "service web/ingress", "ip=192.0.2.1 ipMode=VIP",
          "ip=<address 1 of web> ipMode=Proxy"),
    Meant(PUT_BACK, ("status-wiped",), "service web/ingress", None,
          "ip=<address 1 of web> ipMode=Proxy"),
    Meant(ADDRESS, ("moves",), "cloud web <1>/host a", "<InternalIP of a>", "192.0.2.77"),
    Meant(IMPOSSIBLE, ("no-node-ports",), "cloud web <1>/*", "*", None),
)  # fmt: skip

MEANT: Final = NODES + LIFECYCLE + ROUTES + SERVICES
