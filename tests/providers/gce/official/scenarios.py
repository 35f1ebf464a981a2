"""What happens to Services, stage by stage; after each the picture is taken."""

from collections.abc import Mapping
from typing import Any, Final

from proreus.providers.gce.balancing.annotations import (
    GLOBAL_ACCESS,
    OLD_TYPE,
    RBS,
    SHARE,
    SUBNET,
    TIER,
    TYPE,
)

from ...changes import Change  # noqa: TID252 - pytest imports tests by path
from ...play import Act, Scenario, edits, port  # noqa: TID252
from .stage import OTHER_SUBNET, STATIC

LOCAL: Final = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32100}
CLUSTER: Final = {"externalTrafficPolicy": "Cluster", "healthCheckNodePort": 0}
STICKY: Final = {"sessionAffinity": "ClientIP"}
LOOSE: Final = {"sessionAffinity": "None", "sessionAffinityConfig": None}
RANGES: Final = {"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/25"]}
INTERNAL: Final = {TYPE: "Internal"}


HTTP: Final = port(80, 30080)
HTTPS: Final = port(443, 30443)
DNS: Final = port(53, 30053, "UDP")
MANY: Final = tuple(port(8000 + number, 31000 + number) for number in range(7))


def external(*ports: dict[str, Any], spec: Mapping[str, Any] | None = None, **asked: Any) -> Change:
    """An external Service; `asked` are annotations by the names above."""
    return Change(ports or (HTTP,), asked.get("annotations", {}), spec or {})


def internal(
    *ports: dict[str, Any],
    spec: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str | None] | None = None,
) -> Change:
    """An internal Service."""
    return Change(ports or (HTTP,), {**INTERNAL, **(annotations or {})}, spec or {})


SCENARIOS: Final = (
    edits("external", external()),
    edits("external udp", external(DNS), external(DNS, port(54, 30054, "UDP"))),
    edits("external ports", external(), external(HTTP, HTTPS), external(HTTPS)),
    edits("external many ports", external(*MANY), external(*MANY[:3], HTTP)),
    edits("external ranges", external(), external(spec=RANGES)),
    edits("external affinity", external(), external(spec=STICKY), external(spec=LOOSE)),
    edits("external local", external(), external(spec=LOCAL), external(spec=CLUSTER)),
    edits("external made local", external(spec=LOCAL)),
    edits("external standard", external(annotations={TIER: "Standard"})),
    edits("external premium", external(annotations={TIER: "Premium"})),
    edits("external static", external(spec={"loadBalancerIP": STATIC})),
    edits("external to static", external(), external(spec={"loadBalancerIP": STATIC})),
    edits("external unreserved", external(spec={"loadBalancerIP": "34.10.77.77"})),
    edits("external wrong tier", external(annotations={TIER: "Gold"})),
    edits("external mixed", external(HTTP, DNS)),
    edits("external elsewhere", external(annotations={RBS: "enabled"})),
    Scenario(
        "external hosts",
        (
            Act("made", {"web": external()}),
            Act("one is out", excluded=("node-b",)),
            Act("two are out", excluded=("node-b", "node-d")),
            Act("all are in"),
        ),
    ),
    Scenario(
        "two external",
        (
            Act("made", {"web": external(), "dns": external(DNS)}),
            Act("one is deleted", {"web": Change()}),
        ),
    ),
    edits("internal", internal()),
    edits("internal by the old name", Change((HTTP,), {OLD_TYPE: "Internal"})),
    edits("internal udp", internal(DNS)),
    edits("internal ports", internal(), internal(HTTP, HTTPS)),
    edits("internal many ports", internal(*MANY), internal(*MANY[:2])),
    edits("internal protocol", internal(), internal(DNS)),
    edits("internal ranges", internal(), internal(spec=RANGES)),
    edits("internal affinity", internal(), internal(spec=STICKY)),
    edits("internal local", internal(), internal(spec=LOCAL), internal(spec=CLUSTER)),
    edits("internal global", internal(), internal(annotations={GLOBAL_ACCESS: "true"})),
    edits("internal subnet", internal(annotations={SUBNET: OTHER_SUBNET})),
    edits("internal to subnet", internal(), internal(annotations={SUBNET: OTHER_SUBNET})),
    edits("internal static", internal(spec={"loadBalancerIP": "10.128.9.9"})),
    Scenario(
        "internal shared",
        (
            Act(
                "made",
                {
                    "web": internal(annotations={SHARE: "true"}),
                    "more": internal(HTTPS, annotations={SHARE: "true"}),
                },
            ),
            Act("one is deleted", {"web": Change()}),
        ),
    ),
    Scenario(
        "internal hosts",
        (
            Act("made", {"web": internal()}),
            Act("one is out", excluded=("node-b",)),
            Act("all are in"),
        ),
    ),
    edits("kinds", external(), internal(), external(annotations={TYPE: None})),
    Scenario(
        "both kinds",
        (
            Act("made", {"web": external(), "db": internal(port(5432, 30432))}),
            Act("one is deleted", {"web": Change()}),
        ),
    ),
)
