"""The chart: what its values make, what it refuses."""

import re
from typing import Any

import pytest
import yaml

from proreus.app import flags
from proreus.app.options import Options
from proreus.app.roles import objects
from proreus.cloudprovider import read_config
from proreus.providers.local.config import LocalConfig

from .charts import CHART, ROOT, Programs, Refused, arguments, only, pod

SERVICE_ACCOUNTS = {"args": {"use-service-account-credentials": True}}


def kinds(objects: list[dict[str, Any]]) -> set[str]:
    return {one["kind"] for one in objects}


@pytest.mark.parametrize("values", [{}, {"kind": "DaemonSet", **SERVICE_ACCOUNTS}])
def test_helm_finds_no_fault_with_the_chart(programs: Programs, values: dict[str, Any]) -> None:
    assert "[ERROR]" not in programs.lint(**values)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"cloudProvider": ""}, "cloudProvider"),
        ({"replicass": 3}, "replicass"),
        ({"cloudConfig": {"contents": "x"}}, "contents"),
        ({"metrics": {"serviceMonitor": {"interval": "soon"}}}, "interval"),
        ({"kind": "StatefulSet"}, "kind"),
        ({"securePort": 0}, "securePort"),
        ({"args": {"--v": 2}}, "--v"),
        ({"image": {"digest": "sha256:12"}}, "digest"),
        ({"args": {"cloud-provider": "aws"}}, "use cloudProvider"),
        (
            {"webhooks": {"persistentVolumeLabel": True}, "args": {"webhook-secure-port": 1}},
            "args.webhook-secure-port",
        ),
        ({"webhooks": {"failurePolicy": "Never"}}, "failurePolicy"),
        ({"cloudConfig": {"content": "x", "existingSecret": "other"}}, "give one"),
        ({"args": {"leader-elect-resource-name": "mine"}}, "set rbac.create to false"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
        (
            {"metrics": {"service": False, "serviceMonitor": {"enabled": True}}},
            "metrics.service",
        ),
    ],
)
def test_wrong_values_are_refused_by_name(
    programs: Programs, values: dict[str, Any], named: str
) -> None:
    with pytest.raises(Refused, match=re.escape(named)):
        programs.render(**values)


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_the_pod_runs_on_a_node_that_nothing_else_runs_on(programs: Programs, kind: str) -> None:
    spec = pod(programs.render(kind=kind))
    assert spec["hostNetwork"]
    assert spec["dnsPolicy"] == "Default"
    assert spec["priorityClassName"] == "system-cluster-critical"
    tolerated = {one["key"] for one in spec["tolerations"] if one["operator"] == "Exists"}
    assert tolerated == {
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
    }


def test_every_taint_is_tolerated_if_asked(programs: Programs) -> None:
    assert pod(programs.render(tolerateEverything=True))["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_the_container_has_no_rights_and_writes_nowhere_but_tmp(
    programs: Programs, kind: str
) -> None:
    spec = pod(programs.render(kind=kind, cloudConfig={"content": "x"}))
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    writable = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
    assert writable == {"/tmp"}


def test_a_gateway_is_root_and_may_change_the_network_but_nothing_else(
    programs: Programs,
) -> None:
    spec = pod(programs.render(netAdmin=True))
    (container,) = spec["containers"]
    assert spec["hostNetwork"]
    assert spec["securityContext"]["runAsUser"] == 0
    assert "runAsNonRoot" not in spec["securityContext"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
    }


def test_the_values_that_the_guide_of_local_shows_make_a_gateway(programs: Programs) -> None:
    guide = ROOT.joinpath("docs", "guides", "local.md").read_text()
    shown = re.findall(r"```yaml\n(# values\.yaml for (?:k3s|kubeadm)\n.*?)```", guide, re.DOTALL)
    assert len(shown) == 2
    for text in shown:
        values = yaml.safe_load(text)
        assert "[ERROR]" not in programs.lint(**values)
        made = programs.render(**values)
        spec = pod(made)
        assert spec["hostNetwork"]
        assert spec["nodeSelector"] == {"kubernetes.io/hostname": "node-1"}
        assert only(made, "Deployment")["spec"]["replicas"] == 1
        options, _ = flags.parse(Options, arguments(made), "test", "")
        assert options.cloud_provider == "local"
        config = values["cloudConfig"]
        read = read_config(config["content"], LocalConfig, source=config["key"], environment={})
        assert [one.name for one in read.address_pools] == ["default"]


def test_probes_ask_the_paths_that_the_manager_serves(programs: Programs) -> None:
    (container,) = pod(programs.render(securePort=1234))["containers"]
    paths = {
        name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
    }
    assert {name: get["path"] for name, get in paths.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {(get["port"], get["scheme"]) for get in paths.values()} == {("https", "HTTPS")}
    (port,) = container["ports"]
    assert (port["name"], port["containerPort"]) == ("https", 1234)
    assert "--secure-port=1234" in container["args"]


def test_replicas_do_not_share_a_node_s_port(programs: Programs) -> None:
    host = programs.render()
    (term,) = pod(host)["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    deployment = only(host, "Deployment")
    assert term["labelSelector"] == deployment["spec"]["selector"]
    # Without a surge, since the new replica may have no node to go to.
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    cluster = programs.render(hostNetwork=False)
    assert "strategy" not in only(cluster, "Deployment")["spec"]
    assert "hostPort" not in pod(cluster)["containers"][0]["ports"][0]


def test_a_daemon_set_stays_on_control_plane_nodes_unless_a_node_selector_is_given(
    programs: Programs,
) -> None:
    role = "node-role.kubernetes.io/control-plane"
    assert pod(programs.render(kind="DaemonSet"))["nodeSelector"] == {role: ""}
    other = pod(programs.render(kind="DaemonSet", nodeSelector={"a": "b"}))
    assert other["nodeSelector"] == {"a": "b"}


def test_the_flags_are_ones_the_manager_takes(programs: Programs) -> None:
    values: dict[str, Any] = {
        "cloudConfig": {"existingSecret": "mine", "key": "cloud.yaml"},
        "tls": {"existingSecret": "cert"},
        "args": {
            "controllers": ["*", "-node-route-controller"],
            "concurrent-node-syncs": 1000000,
            "leader-elect": False,
            "v": None,
        },
    }
    args = arguments(programs.render(**values))
    assert args == [
        "--cloud-config=/etc/proreus/cloud-config/cloud.yaml",
        "--cloud-provider=simulated",
        "--concurrent-node-syncs=1000000",
        "--controllers=*,-node-route-controller",
        "--leader-elect=false",
        "--secure-port=10258",
        "--tls-cert-file=/etc/proreus/tls/tls.crt",
        "--tls-private-key-file=/etc/proreus/tls/tls.key",
    ]
    options, removed = flags.parse(Options, args, "test", "")
    assert not removed
    assert options.secure_port == 10258


def test_an_inline_cloud_config_becomes_the_secret_that_is_mounted(programs: Programs) -> None:
    objects = programs.render(cloudConfig={"content": "[Global]\n"})
    secret = only(objects, "Secret")
    assert secret["data"] == {"cloud.conf": "W0dsb2JhbF0K"}
    assert secret["metadata"]["name"] in {
        volume["secret"]["secretName"] for volume in pod(objects)["volumes"] if "secret" in volume
    }
    assert "Secret" not in kinds(programs.render(cloudConfig={"existingSecret": "mine"}))


def test_the_api_server_is_named_for_a_cluster_without_kube_proxy(programs: Programs) -> None:
    objects = programs.render(
        apiServer={"host": "10.1.2.3"}, extraEnv=[{"name": "A", "value": "b"}]
    )
    assert pod(objects)["containers"][0]["env"] == [
        {"name": "KUBERNETES_SERVICE_HOST", "value": "10.1.2.3"},
        {"name": "KUBERNETES_SERVICE_PORT", "value": "6443"},
        {"name": "A", "value": "b"},
    ]


@pytest.mark.parametrize(
    ("kind", "values", "there"),
    [
        ("PodDisruptionBudget", {}, True),
        ("PodDisruptionBudget", {"replicas": 1}, False),
        ("PodDisruptionBudget", {"kind": "DaemonSet"}, False),
        ("PodDisruptionBudget", {"podDisruptionBudget": {"enabled": False}}, False),
        ("NetworkPolicy", {}, False),  # it would not hold for the node's network
        ("NetworkPolicy", {"hostNetwork": False}, True),
        ("ServiceMonitor", {}, False),
        ("ServiceMonitor", {"metrics": {"serviceMonitor": {"enabled": True}}}, True),
        ("PrometheusRule", {"metrics": {"prometheusRule": {"enabled": True}}}, True),
        ("ConfigMap", {"metrics": {"dashboard": {"enabled": True}}}, True),
        ("ServiceAccount", {"serviceAccount": {"create": False, "name": "x"}}, False),
        ("ClusterRole", {"rbac": {"create": False}}, False),
        ("MutatingWebhookConfiguration", {}, False),
        ("MutatingWebhookConfiguration", {"webhooks": {"persistentVolumeLabel": True}}, True),
        (
            "ValidatingWebhookConfiguration",
            {"webhooks": {"persistentVolumeClaimResize": True}},
            True,
        ),
        ("Secret", {"webhooks": {"persistentVolumeLabel": True}}, True),
        (
            "Secret",
            {"webhooks": {"persistentVolumeLabel": True, "tls": {"existingSecret": "mine"}}},
            False,
        ),
    ],
)
def test_values_decide_what_there_is(
    programs: Programs, *, kind: str, values: dict[str, Any], there: bool
) -> None:
    assert (kind in kinds(programs.render(**values))) is there


def test_a_certificate_that_can_be_verified_is(programs: Programs) -> None:
    def endpoint(**values: Any) -> dict[str, Any]:
        objects = programs.render(metrics={"serviceMonitor": {"enabled": True}}, **values)
        (one,) = only(objects, "ServiceMonitor")["spec"]["endpoints"]
        return dict(one["tlsConfig"])

    assert endpoint() == {"insecureSkipVerify": True}
    assert endpoint(tls={"existingSecret": "cert", "serverName": "ccm"}) == {
        "ca": {"secret": {"name": "cert", "key": "ca.crt"}},
        "serverName": "ccm",
    }


def test_every_value_is_documented_and_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    table = (CHART / "README.md").read_text()

    def leaves(part: dict[str, Any], rules: dict[str, Any], path: str = "") -> list[str]:
        assert rules["additionalProperties"] is False, path
        assert part.keys() == rules["properties"].keys() - {"global", "claims", "limits"}, path
        found = []
        for key, value in part.items():
            inner = rules["properties"][key]
            if isinstance(value, dict) and "properties" in inner and key != "resources":
                found += leaves(value, inner, f"{path}{key}.")
            else:
                found.append(f"{path}{key}")
        return found

    missing = [path for path in leaves(values, schema) if f"| `{path}` |" not in table]
    assert missing == []


def rights(objects: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """What the roles allow, each verb on each resource and name, and in which namespace."""
    return {
        (one["metadata"].get("namespace", ""), group, resource, verb, name)
        for one in objects
        for rule in one.get("rules", ())
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ("",))
    }


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("values", "may"),
    [
        ({}, False),
        ({"cloudConfig": {"content": "{}"}}, False),
        ({"cloudConfig": {"content": '{"serviceNamespaceSelector": {}}'}}, True),
        (
            {"cloudConfig": {"content": "{ip-address-pools: {spec: {namespaceSelectors: []}}}"}},
            True,
        ),
        ({"cloudConfig": {"content": "{ip-address-pools: {spec: {namespaces: []}}}"}}, False),
        ({"rbac": {"namespaces": True}}, True),
    ],
)
def test_namespaces_are_listed_only_where_a_cloud_config_selects_by_them(
    programs: Programs, values: dict[str, Any], *, may: bool, apart: bool
) -> None:
    given: dict[str, Any] = {"args": {"use-service-account-credentials": apart}, **values}
    found = rights(programs.render(**given))
    of_namespaces = {one[2:] for one in found if one[2] == "namespaces"}
    expected = {("namespaces", "get", "kube-system")}
    if may:
        expected |= {("namespaces", verb, "") for verb in ("list", "watch")}
    assert of_namespaces == expected


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    "controllers", ["*,kubelet-serving", ["*", "kubelet-serving-approving-controller"]]
)
def test_opt_in_controllers_have_their_rights_where_they_are_named(
    programs: Programs, controllers: str | list[str], *, apart: bool
) -> None:
    more: dict[str, Any] = {"use-service-account-credentials": apart}
    rbac = {"namespaces": True}
    without = programs.render(args=more, rbac=rbac)
    rendered = programs.render(args={**more, "controllers": controllers}, rbac=rbac)
    options = Options(
        controllers=("*", "kubelet-serving"),
        use_service_account_credentials=apart,
        leader_elect_per_controller=True,
    )
    needed = rights(objects(options))
    assert needed <= rights(rendered)
    new = {(resource, verb, name) for _, _, resource, verb, name in rights(rendered)}
    new -= {(resource, verb, name) for _, _, resource, verb, name in rights(without)}
    assert ("signers", "approve", "kubernetes.io/kubelet-serving") in new
    assert {resource for resource, _, _ in new} == {
        "certificatesigningrequests",
        "certificatesigningrequests/approval",
        "signers",
        "leases",
        *(["serviceaccounts/token"] * apart),
    }
    bound = {one["roleRef"]["name"] for one in rendered if "roleRef" in one}
    made = {one["metadata"]["name"] for one in rendered if "rules" in one}
    assert bound == made
