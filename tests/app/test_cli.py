"""The commands, as processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proreus import __version__
from proreus.controllers.table import CONTROLLERS, select

CLOUD = '[Global]\nendpoint = "http://127.0.0.1:1"\nregion = r\ntoken = t0psecret\n'
CLUSTER = """\
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


def proreus(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proreus", *args],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environ},
    )  # fmt: skip


def test_versions_and_help_go_to_standard_output() -> None:
    assert proreus("version").stdout.strip() == f"proreus {__version__}"
    assert proreus("run", "--version").stdout.strip() == f"proreus run {__version__}"
    raw = proreus("run", "/bin/aws-cloud-controller-manager", "--version=raw").stdout
    assert raw.startswith('version.Info{Major:"')
    assert f'GitVersion:"v{__version__}"' in raw
    assert "commands:" in proreus().stdout
    text = proreus("run", "--help").stdout
    assert "leader election flags:" in text
    assert "--node-monitor-period DURATION" in text


def test_an_unknown_command_is_an_error() -> None:
    result = proreus("rnu")
    assert result.returncode == 2
    assert "unknown command 'rnu'" in result.stderr


def test_a_demo_without_a_control_plane_prints_how_to_get_one_and_nothing_else(
    tmp_path: Path,
) -> None:
    result = proreus(
        "demo", "--once", KUBEBUILDER_ASSETS="", XDG_CACHE_HOME=str(tmp_path), PATH="",
        PROREUS_ENVTEST_INDEX="http://127.0.0.1:1/index.yaml",
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.startswith("demo: etcd and kube-apiserver ")
    assert "set KUBEBUILDER_ASSETS" in result.stderr
    assert "Traceback" not in result.stderr


def test_all_problems_of_flags_cloud_config_and_kubeconfig_come_together(tmp_path: Path) -> None:
    cloud = tmp_path / "cloud.conf"
    cloud.write_text(CLOUD.replace("region", "regoin") + "batch-size = many\n")
    cluster = tmp_path / "kubeconfig"
    cluster.write_text(CLUSTER.replace("current-context: c", "current-context: d"))
    result = proreus(
        "run", "--cloud-provider=simulated", f"--cloud-config={cloud}", f"--kubeconfig={cluster}",
        "--controllers=*,-servce", "--leader-elect-lease-duration=5s", "--kube-api-qps=many", "--no-such",
    )  # fmt: skip
    assert result.returncode == 2
    for part in (
        "regoin", "batch-size", "'d'", "unknown controller 'servce', did you mean service",
        "--leader-elect-lease-duration", "--kube-api-qps: 'many'", "unknown flag --no-such",
    ):  # fmt: skip
        assert part in result.stderr
    assert "t0psecret" not in result.stderr
    assert "Traceback" not in result.stderr


def test_a_consequence_of_an_unreadable_flag_is_not_reported() -> None:
    result = proreus(
        "run", "--master=http://127.0.0.1:1", "--cloud-provder=simulated",
        "--leader-elect-lease-duration=soon", "--leader-elect-renew-deadline=20s",
    )  # fmt: skip
    assert result.returncode == 2
    first, second = sorted(result.stderr.splitlines())
    assert "--leader-elect-lease-duration: 'soon'" in first
    assert "did you mean --cloud-provider?" in second


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "must begin with list, or with master NAME"),
        (("show",), "must begin with list, or with master NAME"),
        (("master",), "the cluster's NAME is missing after master"),
        (("master", "--cloud-provider=mesos"), "the cluster's NAME is missing after master"),
        (("list",), "--cloud-provider: must not be empty"),
        (("list", "more", "--cloud-provider=mesos"), "more"),
    ],
)
def test_clusters_names_what_is_missing(words: tuple[str, ...], problem: str) -> None:
    result = proreus("clusters", *words, "--master=http://127.0.0.1:1")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("proreus clusters: ")
    assert problem in result.stderr


@pytest.mark.parametrize("words", [(), ("list",), ("master",), ("master", "prod")])
def test_clusters_has_help_everywhere(words: tuple[str, ...]) -> None:
    result = proreus("clusters", *words, "--help")
    assert result.returncode == 0
    assert "usage: proreus clusters list|master NAME" in result.stdout


def test_an_unknown_provider_names_those_installed() -> None:
    result = proreus("run", "--cloud-provider=nimbus", "--master=http://127.0.0.1:1")
    assert result.returncode == 2
    assert "'nimbus' is unknown; installed are" in result.stderr


def test_a_missing_cloud_config_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.conf"
    result = proreus(
        "run",
        "--cloud-provider=simulated",
        f"--cloud-config={missing}",
        "--master=http://127.0.0.1:1",
    )
    assert result.returncode == 2
    assert str(missing) in result.stderr


def test_the_log_is_json_if_that_is_asked_for(tmp_path: Path) -> None:
    cloud = tmp_path / "cloud.conf"
    cloud.write_text(CLOUD)
    args = (
        "run", "--cloud-provider=simulated", f"--cloud-config={cloud}", "--logging-format=json",
        "--master=http://127.0.0.1:1", "--secure-port=0", "--logtostderr", "--vmodule=x=4",
    )  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "proreus", *args], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        second = json.loads(process.stderr.readline())
        process.terminate()
        rest = process.stderr.read()
    assert first["msg"] == "Flags without effect: klog has removed them"
    assert (first["flags"], first["severity"]) == ("--logtostderr", "warning")
    assert (second["msg"], second["cloud_provider"], second["v"]) == ("Starting", "simulated", 0)
    assert all(json.loads(line) for line in rest.splitlines())
    assert "t0psecret" not in rest


SLOW_TO_CLOSE = """
import asyncio, sys, time
from proreus.app.cli import cloud_controller_manager
from proreus.cloudprovider import CloudProvider, RegisterCloudProvider

class Slow(CloudProvider):
    name = "slow"
    async def start(self, context): ...
    async def close(self):
        print("closing", flush=True)
        {hang}

RegisterCloudProvider("slow", Slow)
sys.exit(cloud_controller_manager(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("hang", "second"),
    [("await asyncio.sleep(3600)", signal.SIGTERM), ("time.sleep(3600)", signal.SIGINT)],
)
def test_a_second_signal_ends_the_process_at_once(hang: str, second: signal.Signals) -> None:
    args = ("--cloud-provider=slow", "--master=http://127.0.0.1:1", "--secure-port=0", "--leader-elect=false")  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_TO_CLOSE.format(hang=hang), *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert "Starting" in process.stderr.readline()
            process.terminate()
            assert process.stdout.readline() == "closing\n"
            process.send_signal(second)
            assert process.wait(60) == 1
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (("*",), {"cloud-node", "cloud-node-lifecycle", "nodeipam", "route", "service"}),
        (("*", "-service"), {"cloud-node", "cloud-node-lifecycle", "nodeipam", "route"}),
        (("cloud-node-controller",), {"cloud-node"}),
        (("service", "service-lb-controller"), {"service"}),
        (("*", "-route", "-nodeipam", "-service-lb-controller", "service"), {"cloud-node", "cloud-node-lifecycle", "service"}),
        (("node-route-controller",), {"route"}),
        (("kubelet-serving",), {"kubelet-serving"}),
        (("pvlabel",), {"pvlabel"}),
        (("*", "persistentvolume-label-controller"), {"cloud-node", "cloud-node-lifecycle", "nodeipam", "pvlabel", "route", "service"}),
        ((), set()),
    ],
)  # fmt: skip
def test_controllers_are_selected_by_name_and_alias(
    wanted: tuple[str, ...], names: set[str]
) -> None:
    chosen, problems = select(wanted)
    assert {entry.alias for entry in chosen} == names
    assert problems == ()


def test_every_unknown_controller_is_named() -> None:
    _, problems = select(("nodes", "-volumes", "*"))
    assert len(problems) == 2
    assert all(entry.alias in problems[1] for entry in CONTROLLERS)
