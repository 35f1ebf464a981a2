"""What happens to Services, stage by stage; after each the picture is taken."""

from collections.abc import Mapping
from typing import Any, Final

from proreus.providers.aws.annotations import PREFIX

from ...changes import Change  # noqa: TID252 - pytest imports tests by path
from ...play import Act, Scenario, edits, port  # noqa: TID252

ARN: Final = "arn:aws:iam::123456789012:server-certificate/one"
LOCAL: Final = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32100}
RANGES: Final = {"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/25"]}


HTTP: Final = port(80, 30080)
HTTPS: Final = port(443, 30443)
MOVED: Final = port(80, 31080)
DNS: Final = port(53, 30053, "UDP")


def classic(*ports: dict[str, Any], spec: Mapping[str, Any] | None = None, **asked: str) -> Change:
    """A Service with a load balancer of the default type; `_` stands for `-` in annotations."""
    annotations = {PREFIX + name.replace("_", "-"): value for name, value in asked.items()}
    return Change(ports or (HTTP,), annotations, spec or {})


def nlb(*ports: dict[str, Any], spec: Mapping[str, Any] | None = None, **asked: str) -> Change:
    """A Service with a network load balancer."""
    return classic(*ports, spec=spec, **{"type": "nlb", **asked})


NETWORK: Final = (
    Scenario(
        "nlb",
        (
            Act("made", {"web": nlb(HTTP)}),
            Act("a machine goes", excluded=("b",)),
            Act("a port comes", {"web": nlb(HTTP, HTTPS)}, ("b",)),
            Act("a node port moves", {"web": nlb(MOVED, HTTPS)}, ("b",)),
            Act("a port goes", {"web": nlb(HTTPS)}, ("b",)),
            Act("a machine comes"),
        ),
    ),
    edits("nlb internal", nlb(HTTP, internal="true")),
    edits(
        "nlb ranges",
        nlb(HTTP, spec=RANGES),
        nlb(HTTP, HTTPS, spec={"loadBalancerSourceRanges": ["192.0.2.0/24"]}),
        nlb(HTTP, HTTPS, spec={"loadBalancerSourceRanges": None}),
    ),
    edits(
        "nlb local",
        nlb(HTTP, spec=LOCAL),
        nlb(HTTP, spec={"externalTrafficPolicy": "Cluster"}),
        nlb(HTTP, spec=LOCAL),
    ),
    edits("nlb udp", nlb(DNS)),
    edits("nlb tls", nlb(HTTP, HTTPS, ssl_cert=ARN, ssl_ports="443")),
    edits(
        "nlb checks",
        nlb(HTTP, healthcheck_protocol="HTTP", healthcheck_path="/live", healthcheck_port="8080",
            healthcheck_interval="10", healthcheck_healthy_threshold="2",
            healthcheck_unhealthy_threshold="2"),
        nlb(HTTP, healthcheck_protocol="TCP", healthcheck_path="", healthcheck_port="traffic-port",
            healthcheck_interval="30", healthcheck_healthy_threshold="4",
            healthcheck_unhealthy_threshold="4"),
    ),
    edits(
        "nlb attributes",
        nlb(HTTP, cross_zone_load_balancing_enabled="true", access_log_enabled="true",
            access_log_s3_bucket_name="logs", access_log_s3_bucket_prefix="web",
            target_group_attributes="preserve_client_ip.enabled=false",
            additional_resource_tags="team=a,stage=b"),
        nlb(HTTP, cross_zone_load_balancing_enabled="false", access_log_enabled="false",
            target_group_attributes="preserve_client_ip.enabled=true,proxy_protocol_v2.enabled=true",
            additional_resource_tags="team=a,stage=c"),
    ),
    edits("nlb labels", nlb(HTTP, target_node_labels="topology.kubernetes.io/zone=us-east-1c")),
    Scenario(
        "two nlbs",
        (
            Act("made", {"web": nlb(HTTP)}),
            Act("another", {"api": nlb(port(8080, 30081))}),
            Act("one is deleted", {"web": Change()}),
        ),
    ),
)  # fmt: skip
CLASSIC: Final = (
    Scenario(
        "classic",
        (
            Act("made", {"web": classic(HTTP)}),
            Act("a machine goes", excluded=("b",)),
            Act("a port comes", {"web": classic(HTTP, HTTPS)}, ("b",)),
            Act("a node port moves", {"web": classic(MOVED, HTTPS)}, ("b",)),
            Act("a port goes", {"web": classic(HTTPS)}, ("b",)),
            Act("a machine comes"),
        ),
    ),
    edits("classic order", classic(HTTPS, HTTP)),
    edits("classic internal", classic(HTTP, internal="true")),
    edits(
        "classic ranges",
        classic(HTTP, spec=RANGES),
        classic(HTTP, HTTPS, spec={"loadBalancerSourceRanges": ["192.0.2.0/24"]}),
        classic(HTTP, HTTPS, spec={"loadBalancerSourceRanges": None}),
    ),
    edits(
        "classic local",
        classic(HTTP, spec=LOCAL),
        classic(HTTP, spec={"externalTrafficPolicy": "Cluster"}),
    ),
    edits(
        "classic tls",
        classic(HTTP, HTTPS, ssl_cert=ARN, ssl_ports="443", backend_protocol="http"),
        classic(HTTP, HTTPS, ssl_cert=ARN, ssl_ports="443", backend_protocol="ssl",
                ssl_negotiation_policy="ELBSecurityPolicy-TLS-1-2-2017-01"),
    ),
    edits("classic proxy", classic(HTTP, HTTPS, proxy_protocol="*"), classic(HTTP, HTTPS)),
    edits(
        "classic attributes",
        classic(HTTP, cross_zone_load_balancing_enabled="true", access_log_enabled="true",
                access_log_emit_interval="5", access_log_s3_bucket_name="logs",
                access_log_s3_bucket_prefix="web", connection_draining_enabled="true",
                connection_draining_timeout="120", connection_idle_timeout="90",
                additional_resource_tags="team=a,stage=b"),
        classic(HTTP, cross_zone_load_balancing_enabled="false", access_log_enabled="false",
                connection_draining_enabled="false", connection_idle_timeout="60",
                additional_resource_tags="team=a,stage=c"),
    ),
    edits(
        "classic checks",
        classic(HTTP, healthcheck_interval="20", healthcheck_timeout="4",
                healthcheck_healthy_threshold="3", healthcheck_unhealthy_threshold="5"),
    ),
    Scenario(
        "classic and nlb",
        (
            Act("made", {"web": classic(HTTP)}),
            Act("another", {"api": nlb(port(8080, 30081))}),
            Act("one is deleted", {"web": Change()}),
        ),
    ),
)  # fmt: skip
SCENARIOS: Final = NETWORK + CLASSIC
