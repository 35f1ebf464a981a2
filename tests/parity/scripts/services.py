"""What happens to Services of type LoadBalancer, while the nodes stay as they are."""

from typing import Final

from proreus.kube.objects import ANNOTATION_SOURCE_RANGES

from ..steps import (  # noqa: TID252 - pytest imports tests by path
    addressed,
    delete,
    edit,
    fails,
    frees_address,
    gone,
    has_listeners,
    port,
    service,
    takes_address,
    told,
    without_finalizer,
)
from .script import script

WEB: Final = (service(), addressed())
GONE: Final = (delete(), gone(kind="service", here="web"))
TCP: Final = ("TCP", 80)
CLASS: Final = "example.com/other"

SCRIPTS: Final = (
    script("tcp", WEB),
    script("udp", (service(ports=[port(53, "UDP")]), addressed())),
    script("mixed", (service(ports=[port(53, "UDP"), port(53)]), addressed())),
    script("many-ports", (service(ports=[port(80), port(443), port(8080)]), addressed())),
    script("port-changed", WEB, (edit(spec={"ports": [port(81)]}), has_listeners(("TCP", 81)))),
    script(
        "port-added",
        WEB,
        (edit(spec={"ports": [port(80), port(443)]}), has_listeners(TCP, ("TCP", 443))),
    ),
    script(
        "port-removed",
        (service(ports=[port(80), port(443)]), addressed()),
        (edit(spec={"ports": [port(443)]}), has_listeners(("TCP", 443))),
    ),
    script(
        "protocol-changed",
        (service(ports=[port(80)]), addressed()),
        (edit(spec={"ports": [port(80, "UDP")]}), has_listeners(("UDP", 80))),
    ),
    script("node-port-changed", WEB, (edit(spec={"ports": [port(80, nodePort=30007)]}),)),
    script("to-cluster-ip", WEB, (edit(spec={"type": "ClusterIP"}), told("DeletedLoadBalancer"))),
    script("to-node-port", WEB, (edit(spec={"type": "NodePort"}), told("DeletedLoadBalancer"))),
    script(
        "from-cluster-ip",
        (service(type="ClusterIP"), edit(spec={"type": "LoadBalancer"}), addressed()),
    ),
    script("cluster-ip", (service(type="ClusterIP"),)),
    script("deleted", WEB, GONE),
    script("name-anew", WEB, GONE, WEB),
    script("other-class", (service(loadBalancerClass=CLASS),)),
    script("other-class-deleted", (service(loadBalancerClass=CLASS),), GONE),
    script(
        "to-other-class",
        WEB,
        (edit(spec={"type": "ClusterIP"}), told("DeletedLoadBalancer")),
        (edit(spec={"type": "LoadBalancer", "loadBalancerClass": CLASS}),),
    ),
    script(
        "ranges", (service(loadBalancerSourceRanges=["192.0.2.0/24", "10.1.0.0/16"]), addressed())
    ),
    script(
        "ranges-changed",
        (service(loadBalancerSourceRanges=["192.0.2.0/24"]), addressed()),
        (edit(spec={"loadBalancerSourceRanges": ["198.51.100.0/24"]}),),
    ),
    script(
        "ranges-removed",
        (service(loadBalancerSourceRanges=["192.0.2.0/24"]), addressed()),
        (edit(spec={"loadBalancerSourceRanges": None}),),
    ),
    script(
        "ranges-by-annotation",
        (
            service(
                metadata={"annotations": {ANNOTATION_SOURCE_RANGES: "192.0.2.0/24, 10.1.0.0/16"}}
            ),
            addressed(),
        ),
    ),
    script("pool", (service(pool=1), addressed())),
    script("pool-taken", (takes_address(2), service(pool=2), told("SyncLoadBalancerFailed"))),
    script(
        "pool-freed",
        (takes_address(3), service(pool=3), told("SyncLoadBalancerFailed")),
        (frees_address(), addressed()),
    ),
    script(
        "pool-taken-deleted",
        (takes_address(4), service(pool=4), told("SyncLoadBalancerFailed")),
        GONE,
    ),
    script("local", (service(externalTrafficPolicy="Local"), addressed())),
    script("to-local", WEB, (edit(spec={"externalTrafficPolicy": "Local"}),)),
    script("sticky", (service(sessionAffinity="ClientIP"), addressed())),
    script(
        "sticky-time",
        (service(sessionAffinity="ClientIP"), addressed()),
        (edit(spec={"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}),),
    ),
    script(
        "sticky-no-more",
        (service(sessionAffinity="ClientIP"), addressed()),
        (edit(spec={"sessionAffinity": "None"}),),
    ),
    script("annotated", WEB, (edit(metadata={"annotations": {"example.com/team": "red"}}),)),
    script("labelled", WEB, (edit(metadata={"labels": {"team": "red"}}),)),
    script("selector", WEB, (edit(spec={"selector": {"app": "web"}}),)),
    script(
        "no-node-ports",
        (service(allocateLoadBalancerNodePorts=False), told("SyncLoadBalancerFailed")),
    ),
    script("delete-fails", WEB, (fails("*.delete", part="load_balancer"), GONE)),
    script(
        "delete-keeps-failing",
        WEB,
        (fails("*.delete", part="load_balancer", count=0), delete()),
    ),
    script(
        "listener-fails",
        (service(ports=[port(80), port(443)]), addressed()),
        (fails("*.delete", part="firewall"), GONE),
    ),
    script(
        "status-changed",
        WEB,
        (
            edit(
                subresource="status",
                status={"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}},
            ),
        ),
    ),
    script("status-wiped", WEB, (edit(subresource="status", status={"loadBalancer": None}),)),
    script("finalizer-removed", WEB, (without_finalizer(),)),
    script("twice", (service("web"), service("api"), addressed("web"), addressed("api"))),
)
