"""A real API server takes what the chart makes, and has nothing to say about it."""

import asyncio
from typing import Any, Final

import pytest
import yaml

from proreus.testing.controlplane import ControlPlane

from .apply import Cluster
from .charts import ROOT, Programs

MANIFESTS: Final = sorted((ROOT / "deploy").glob("*.yaml"))
EVERYTHING: Final[dict[str, Any]] = {
    "cloudConfig": {"content": "[Global]\n"},
    "hostNetwork": False,
    "networkPolicy": {"from": [{"namespaceSelector": {}}]},
    "imagePullSecrets": [{"name": "pull"}],
    "apiServer": {"host": "10.1.2.3"},
    "tls": {"existingSecret": "cert", "serverName": "ccm"},
    "webhooks": {
        "persistentVolumeLabel": True,
        "persistentVolumeClaimResize": True,
        "failurePolicy": "Fail",
        "annotations": {"a": "b"},
    },
    "rbac": {"extraRules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "serviceAccount": {"annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"a": "b"},
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraEnvFrom": [{"secretRef": {"name": "env"}}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "extraTolerations": [{"key": "a", "operator": "Exists"}],
    "args": {"use-service-account-credentials": True},
    "bgpSpeaker": {
        "enabled": True,
        "cloudConfig": {"existingSecret": "speakers"},
        "passwordsSecret": "peers",
        "frr": {"image": {"repository": "registry.example/frr", "tag": "10.2"}, "group": 105},
        "affinity": {"nodeAffinity": {}},
    },
    "metrics": {
        "readers": [{"name": "prometheus", "namespace": "monitoring"}],
        "serviceMonitor": {"enabled": True, "labels": {"a": "b"}},
        "prometheusRule": {"enabled": True, "labels": {"a": "b"}},
        "dashboard": {"enabled": True},
    },
}
GROUP: Final = "monitoring.coreos.com"


def operator_kind(kind: str) -> dict[str, Any]:
    """The Prometheus operator's kind, as far as that the API server keeps its objects."""
    plural = kind.lower() + "s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "x-kubernetes-preserve-unknown-fields": True,
                                }
                            },
                        }
                    },
                }
            ],
        },
    }


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
async def test_the_rendered_manifests_are_accepted_without_a_warning(
    control_plane: ControlPlane, file: Any
) -> None:
    async with Cluster.of(control_plane) as cluster:
        await cluster.apply(yaml.safe_load_all(file.read_text()))
        assert cluster.warnings == []


async def test_everything_the_chart_can_make_is_accepted_without_a_warning(
    control_plane: ControlPlane, programs: Programs
) -> None:
    operator = [operator_kind("ServiceMonitor"), operator_kind("PrometheusRule")]
    async with Cluster.of(control_plane) as cluster:
        await cluster.apply(operator)
        async with asyncio.timeout(60):
            while len((await cluster.read(f"/apis/{GROUP}/v1")).get("resources", [])) < len(
                operator
            ):
                await asyncio.sleep(0.05)
        await cluster.apply(programs.render(**EVERYTHING))
        assert cluster.warnings == []
