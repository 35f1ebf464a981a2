"""Alerts and dashboard: real PromQL, on metrics that there are, and alerts that fire when due."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from proreus.providers.local import usage
from proreus.runtime import metrics

from .charts import CHART, Programs

ALERTS: Final = CHART / "files" / "alerts.yaml"
DASHBOARD: Final = CHART / "files" / "dashboard.json"
JOB: Final = "cloud-controller-manager"
SUFFIXES: Final[dict[type[MetricWrapperBase], tuple[str, ...]]] = {
    Counter: ("_total",),
    Gauge: ("",),
    Histogram: ("_bucket", "_count", "_sum"),
}
OF_TARGETS: Final = {"job", "instance"}
"""Labels that Prometheus gives to every series."""
OTHERS: Final = {"up": set[str](), "process_resident_memory_bytes": set[str]()}
"""Series that are no entry of the table: Prometheus' own, and the process collector's."""


def series() -> dict[str, set[str]]:
    """Every series that the manager shows, and its labels."""
    found = dict(OTHERS)
    for metric in (*vars(metrics).values(), usage.TOTAL, usage.USED):
        for kind, suffixes in SUFFIXES.items():
            if isinstance(metric, kind):
                for suffix in suffixes:
                    labels = {*metric._labelnames, *(["le"] if suffix == "_bucket" else [])}
                    found[metric._name + suffix] = labels
    return found


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def dashboard_expressions() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m")


def test_alerts_and_dashboard_read_series_that_there_are(programs: Programs) -> None:
    known = series()
    expressions = [alert["expr"] for alert in alerts()] + list(dashboard_expressions())
    selections = programs.selections(expressions)
    assert len(selections) == len(expressions)
    for expression, selection in zip(expressions, selections, strict=True):
        labels = set[str](OF_TARGETS)
        assert selection["selectors"], expression
        for selector in selection["selectors"]:
            assert selector["metric"] in known, expression
            assert selector["labels"].get("job") == JOB, expression
            labels |= known[selector["metric"]]
            assert selector["labels"].keys() <= OF_TARGETS | known[selector["metric"]], expression
        assert set(selection["grouping"]) <= labels, expression


def test_every_alert_has_a_severity_and_a_remedy() -> None:
    for alert in alerts():
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert alert["annotations"].keys() == {"summary", "description"}


def test_dashboard_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        own = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & own
        assert max(x for x, _ in own) < 24
        cells |= own


def one(metric: str, **labels: str) -> str:
    """A series of the one replica."""
    given = {"job": JOB, "instance": "a:10258", **labels}
    return metric + "{" + ",".join(f'{key}="{value}"' for key, value in given.items()) + "}"


UP: Final = {one("up"): "1x60"}

# Alert; series that make it fire; series that are as they should be.
CASES: Final[dict[str, tuple[dict[str, str], dict[str, str]]]] = {
    "CloudControllerManagerDown": ({one("up"): "0x60"}, {}),
    "CloudControllerManagerNotLeading": (
        {one("leader_election_master_status", name="x"): "0x60"},
        {
            one("leader_election_master_status", name="x"): "0x60",
            one("leader_election_master_status", name="x", instance="b:10258"): "1x60",
        },
    ),
    "CloudControllerManagerTwoLeaders": (
        {
            one("leader_election_master_status", name=JOB): "1x60",
            one("leader_election_master_status", name=JOB, instance="b:10258"): "1x60",
        },
        {  # a lease for each controller, and the main one held together
            one("leader_election_master_status", name=JOB): "1x60",
            one("leader_election_master_status", name=JOB, instance="b:10258"): "1x60",
            one("leader_election_master_status", name=JOB + "-service"): "1x60",
            one("leader_election_master_status", name=JOB + "-route", instance="b:10258"): "1x60",
        },
    ),
    "CloudControllerManagerUnhealthy": (
        {one("kubernetes_healthcheck", name="leaderElection", type="livez"): "0x60"},
        {one("kubernetes_healthcheck", name="leaderElection", type="livez"): "1x60"},
    ),
    "CloudControllerManagerCrashing": (
        {one("proreus_crashes_total", task="x"): "0+1x60"},
        {one("proreus_crashes_total", task="x"): "0x58 1"},
    ),
    "CloudControllerManagerBlocked": (
        {one("proreus_event_loop_blocked_seconds_total"): "0+12x60"},
        {one("proreus_event_loop_blocked_seconds_total"): "0+1x60"},
    ),
    "CloudFailing": (
        {
            one("cloudprovider_requests_total", service="s", operation="o", code="ok"): "0+10x60",
            one(
                "cloudprovider_requests_total", service="s", operation="o", code="error"
            ): "0+20x60",
        },
        {
            one("cloudprovider_requests_total", service="s", operation="o", code="ok"): "0+10x60",
            one("cloudprovider_requests_total", service="s", operation="o", code="error"): "0+2x60",
        },
    ),
    "CloudThrottling": (
        {
            one("cloudprovider_requests_total", service="s", operation="o", code="ok"): "0+10x60",
            one(
                "cloudprovider_requests_total", service="s", operation="o", code="throttled"
            ): "0+5x60",
        },
        {one("cloudprovider_requests_total", service="s", operation="o", code="ok"): "0+10x60"},
    ),
    "CloudCallsWaiting": (
        {one("proreus_cloud_calls_waiting", quota="c", kind="read"): "20x60"},
        {one("proreus_cloud_calls_waiting", quota="c", kind="read"): "20x50 0 20x9"},
    ),
    "CloudProviderMisbehaves": (
        {one("proreus_provider_faults_total", provider="p", verb="v", kind="hung"): "_x40 1x20"},
        {one("proreus_provider_faults_total", provider="p", verb="v", kind="hung"): "3x60"},
    ),
    "CloudConfigRefused": (
        {one("proreus_cloud_config_current"): "0x60"},
        {one("proreus_cloud_config_current"): "1x60"},
    ),
    "NodesUninitialized": (
        {one("proreus_oldest_uninitialized_node_seconds"): "0+60x60"},
        {one("proreus_oldest_uninitialized_node_seconds"): "60x60"},
    ),
    "NodeDeletionsHeld": (
        {one("proreus_nodes_held_by_breaker"): "7x60"},
        {one("proreus_nodes_held_by_breaker"): "0x60"},
    ),
    "NodeDeletionsUnproven": (
        {one("proreus_nodes_held_without_proof"): "1x60"},
        {one("proreus_nodes_held_without_proof"): "0x60"},
    ),
    "NodesUnknownToCloud": (
        {one("proreus_nodes_unknown_to_cloud"): "1x60"},
        {one("proreus_nodes_unknown_to_cloud"): "1x5 0x55"},
    ),
    "ServingCertificatesRefused": (
        {one("proreus_kubelet_serving_requests_refused"): "2x60"},
        {one("proreus_kubelet_serving_requests_refused"): "2x5 0x55"},
    ),
    "WorkQueueStuck": (
        {one("workqueue_longest_running_processor_seconds", name="service"): "0+60x60"},
        {one("workqueue_longest_running_processor_seconds", name="service"): "300x60"},
    ),
    "WorkQueueBacklog": (
        {one("workqueue_depth", name="service"): "100x60"},
        {one("workqueue_depth", name="service"): "100x50 0 100x9"},
    ),
    "LoadBalancersFailing": (
        {
            one(
                "proreus_reconciles_total", controller="service-lb-controller", result="error"
            ): "0+1x60"
        },
        {
            one(
                "proreus_reconciles_total", controller="service-lb-controller", result="ok"
            ): "0+9x60"
        },
    ),
    "LoadBalancerHostsFailing": (
        {one("service_controller_nodesync_error_total"): "0+1x60"},
        {one("service_controller_nodesync_error_total"): "4x60"},
    ),
    "RoutesFailing": (
        {
            one(
                "proreus_reconciles_total", controller="node-route-controller", result="error"
            ): "0+1x60"
        },
        {
            one(
                "proreus_reconciles_total", controller="service-lb-controller", result="ok"
            ): "0+1x60"
        },
    ),
    "PodCIDRsRunningOut": (
        {one("node_ipam_controller_cidrset_usage_cidrs", clusterCIDR="10.0.0.0/16"): "0.95x60"},
        {one("node_ipam_controller_cidrset_usage_cidrs", clusterCIDR="10.0.0.0/16"): "0.5x60"},
    ),
    "AddressPoolsRunningOut": (
        {
            one("proreus_local_pool_addresses_used", pool="web"): "31x60",
            one("proreus_local_pool_addresses", pool="web"): "32x60",
        },
        {  # a small pool is meant to be full
            one("proreus_local_pool_addresses_used", pool="one"): "1x60",
            one("proreus_local_pool_addresses", pool="one"): "1x60",
        },
    ),
    "ApiServerRequestsFailing": (
        {
            one("rest_client_requests_total", method="GET", code="200"): "0+10x60",
            one("rest_client_requests_total", method="GET", code="<error>"): "0+10x60",
        },
        {
            one("rest_client_requests_total", method="GET", code="200"): "0+10x60",
            one("rest_client_requests_total", method="GET", code="409"): "0+10x60",
        },
    ),
    "ApiServerForbids": (
        {one("rest_client_requests_total", method="PATCH", code="403"): "_x50 1x10"},
        {one("rest_client_requests_total", method="PATCH", code="409"): "0+1x60"},
    ),
}


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == {alert["alert"] for alert in alerts()}


@pytest.fixture(scope="module")
def fired(programs: Programs) -> dict[str, tuple[set[str], set[str], str]]:
    """For each case, what fires in trouble and without, and the texts of the first."""
    scenarios = [
        {"series": UP | series, "minutes": 60} for case in CASES.values() for series in case
    ]
    results = iter(programs.firing(ALERTS, scenarios))
    found = {}
    for name in CASES:
        bad, good = next(results), next(results)
        texts = " ".join(text for alert in bad for text in alert["annotations"].values())
        found[name] = (
            {alert["labels"]["alertname"] for alert in bad},
            {alert["labels"]["alertname"] for alert in good},
            texts,
        )
    return found


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_in_its_trouble_and_only_then(
    fired: dict[str, tuple[set[str], set[str], str]], name: str
) -> None:
    bad, good, texts = fired[name]
    assert bad == {name}
    assert good == set()
    assert "<no value>" not in texts
