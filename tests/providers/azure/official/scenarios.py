"""What happens to Services, act by act; after each the picture is taken."""

from collections.abc import Mapping
from typing import Any, Final

from ...changes import Change  # noqa: TID252 - pytest imports tests by path
from ...play import Act, Scenario, edits, port  # noqa: TID252
from .stage import FIXED, FIXED_ADDRESS, OTHER_SUBNET

STEM: Final = "service.beta.kubernetes.io/"
LOCAL: Final = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32100}
CLUSTER: Final = {"externalTrafficPolicy": "Cluster", "healthCheckNodePort": 0}
STICKY: Final = {"sessionAffinity": "ClientIP"}
LOOSE: Final = {"sessionAffinity": "None", "sessionAffinityConfig": None}
RANGES: Final = {"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/25"]}
OPEN: Final = {"loadBalancerSourceRanges": None}

HTTP: Final = port(80, 30080)
HTTPS: Final = port(443, 30443)
DNS: Final = port(53, 30053, "UDP")
MANY: Final = tuple(port(8000 + number, 31000 + number) for number in range(7))


def web(
    *ports: dict[str, Any], spec: Mapping[str, Any] | None = None, **asked: str | None
) -> Change:
    """A Service; `asked` are annotations without `azure-`, written with underscores."""
    given = {f"{STEM}azure-{key.replace('_', '-')}": value for key, value in asked.items()}
    return Change(ports or (HTTP,), given, spec or {})


def inner(*ports: dict[str, Any], spec: Mapping[str, Any] | None = None, **asked: str) -> Change:
    """An internal one."""
    return web(*ports, spec=spec, load_balancer_internal="true", **asked)


def of_port(name: str, value: str, *ports: dict[str, Any]) -> Change:
    """A Service with an annotation of a single port."""
    return Change(ports or (HTTP, HTTPS), {f"{STEM}{name}": value})


SCENARIOS: Final = (
    edits("public", web()),
    edits("public udp", web(DNS), web(DNS, port(54, 30054, "UDP"))),
    edits("public ports", web(), web(HTTP, HTTPS), web(HTTPS)),
    edits("public many ports", web(*MANY), web(*MANY[:3], HTTP)),
    edits("public both protocols", web(HTTP, DNS)),
    edits("public ranges", web(), web(spec=RANGES), web(spec=OPEN)),
    edits("public affinity", web(), web(spec=STICKY), web(spec=LOOSE)),
    edits("public local", web(), web(spec=LOCAL), web(spec=CLUSTER)),
    edits("public made local", web(spec=LOCAL)),
    edits("public idle", web(), web(load_balancer_tcp_idle_timeout="30")),
    edits("public without reset", web(load_balancer_disable_tcp_reset="true")),
    edits("public probes", web(load_balancer_health_probe_protocol="http"),
          web(load_balancer_health_probe_protocol="http",
              load_balancer_health_probe_request_path="/healthy"),
          web(load_balancer_health_probe_protocol="tcp")),
    edits("public probe timing", web(load_balancer_health_probe_interval="20",
                                     load_balancer_health_probe_num_of_probe="4")),
    edits("probe of a port", of_port("port_80_health-probe_protocol", "http"),
          of_port("port_80_health-probe_port", "443")),
    edits("port without a rule", of_port("port_443_no_lb_rule", "true")),
    edits("port without a probe", of_port("port_443_no_probe_rule", "true")),
    edits("application protocols", web({**HTTP, "appProtocol": "http"},
                                       {**HTTPS, "appProtocol": "https"})),
    edits("node ports", web(disable_load_balancer_floating_ip="true"), web(
        disable_load_balancer_floating_ip=None)),
    edits("service tags", web(allowed_service_tags="AzureCloud,AzureFrontDoor.Backend")),
    edits("ip ranges", web(allowed_ip_ranges="192.0.2.0/24,203.0.113.7/32")),
    edits("denied", web(deny_all_except_load_balancer_source_ranges="true", spec=RANGES),
          web(deny_all_except_load_balancer_source_ranges=None, spec=RANGES)),
    edits("dns label", web(dns_label_name="shop"), web(dns_label_name="store")),
    edits("tags", web(pip_tags="team=a,tier=b")),
    edits("named address", web(), web(pip_name=FIXED)),
    edits("given address", web(spec={"loadBalancerIP": FIXED_ADDRESS}),
          web(spec={"loadBalancerIP": None})),
    edits("address by annotation", web(load_balancer_ipv4=FIXED_ADDRESS)),
    edits("additional addresses", web(additional_public_ips="203.0.113.9")),
    edits("internal", inner()),
    edits("internal ports", inner(), inner(HTTP, HTTPS), inner(DNS)),
    edits("internal ranges", inner(spec=RANGES)),
    edits("internal subnet", inner(load_balancer_internal_subnet=OTHER_SUBNET)),
    edits("internal to subnet", inner(), inner(load_balancer_internal_subnet=OTHER_SUBNET)),
    edits("internal static", inner(spec={"loadBalancerIP": "10.0.200.9"})),
    edits("internal all ports", inner(HTTP, HTTPS,
                                      load_balancer_enable_high_availability_ports="true")),
    edits("internal local", inner(spec=LOCAL)),
    edits("kinds", web(), inner(), web(load_balancer_internal=None)),
    edits("wrong timeout", web(load_balancer_tcp_idle_timeout="200")),
    Scenario(
        "two public",
        (
            Act("made", {"web": web(), "dns": web(DNS)}),
            Act("one is deleted", {"web": Change()}),
        ),
    ),
    Scenario(
        "one address for two",
        (
            Act("made", {"web": web(pip_name=FIXED)}),
            Act("another one joins", {"more": web(HTTPS, pip_name=FIXED)}),
            Act("the first one is deleted", {"web": Change()}),
        ),
    ),
    Scenario(
        "one internal address for two",
        (
            Act("made", {"web": inner(spec={"loadBalancerIP": "10.0.200.7"})}),
            Act("another one joins", {"more": inner(HTTPS, spec={"loadBalancerIP": "10.0.200.7"})}),
            Act("the first one is deleted", {"web": Change()}),
        ),
    ),
    Scenario(
        "both kinds",
        (
            Act("made", {"web": web(), "db": inner(port(5432, 30432))}),
            Act("one is deleted", {"web": Change()}),
        ),
    ),
    Scenario(
        "hosts",
        (
            Act("made", {"web": web()}),
            Act("one is out", excluded=("alone-1",)),
            Act("all are in"),
        ),
    ),
)  # fmt: skip
