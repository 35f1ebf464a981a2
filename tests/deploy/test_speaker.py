"""The chart's BGP speakers: what they may do, what is refused, and that FRR runs as it says."""

import grp
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from proreus.app import flags
from proreus.app.rights import manifests
from proreus.app.speaker.options import SpeakerOptions
from proreus.app.speaker.rights import ROLE
from proreus.cloudprovider import read_config
from proreus.providers.local.bgp import frr
from proreus.providers.local.bgp.config import BGP, BFDProfile, Peer
from proreus.providers.local.bgp.engine import Engine
from proreus.providers.local.config import LocalConfig
from proreus.testing import objects
from proreus.testing.waiting import block_until, until

from .charts import ROOT, Programs, Refused, only, pod

LOCAL: Final = {"cloudProvider": "local", "cloudConfig": {"content": "x", "key": "local.yaml"}}
IMAGE: Final = {"frr": {"image": {"repository": "registry.example/frr", "tag": "10.2"}}}
ON_HOSTS: Final = {"frr": {"group": 105}}


def speakers(programs: Programs, values: dict[str, Any]) -> list[dict[str, Any]]:
    return programs.render(**LOCAL, bgpSpeaker={"enabled": True, **values})


def daemon_set(objects: list[dict[str, Any]]) -> dict[str, Any]:
    template: dict[str, Any] = only(objects, "DaemonSet")["spec"]["template"]
    return template


def containers(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in daemon_set(objects)["spec"]["containers"]}


def test_there_are_no_speakers_unless_asked_for(programs: Programs) -> None:
    made = programs.render(**LOCAL)
    assert not [one for one in made if "speaker" in one["metadata"]["name"]]


@pytest.mark.parametrize(
    ("values", "more", "named"),
    [
        (IMAGE, {"cloudProvider": "aws,local"}, "bgpSpeaker.cloudConfig.existingSecret"),
        (IMAGE, {"cloudConfig": {}}, "cloudConfig.content"),
        ({}, {}, "getent group frrvty"),
        ({"frr": {"image": {"repository": "frr"}}}, {}, "bgpSpeaker.frr.image.tag"),
        ({**IMAGE, "port": 0}, {}, "port"),
        ({**IMAGE, "host": "all"}, {}, "host"),
        ({"frr": {"group": "frrvty"}}, {}, "group"),
        ({"frr": {"group": 0}}, {}, "group"),
        ({"frr": {**IMAGE["frr"], "programs": "frr; rm"}}, {}, "programs"),
        ({**IMAGE, "nodeSelectors": {}}, {}, "nodeSelectors"),
    ],
)
def test_wrong_values_are_refused_by_name(
    programs: Programs, values: dict[str, Any], more: dict[str, Any], named: str
) -> None:
    with pytest.raises(Refused, match=re.escape(named)):
        programs.render(**{**LOCAL, **more}, bgpSpeaker={"enabled": True, **values})


@pytest.mark.parametrize("values", [IMAGE, ON_HOSTS, {**IMAGE, "passwordsSecret": "peers"}])
def test_helm_finds_no_fault_with_speakers(programs: Programs, values: dict[str, Any]) -> None:
    assert "[ERROR]" not in programs.lint(**LOCAL, bgpSpeaker={"enabled": True, **values})


def test_speakers_are_none_of_the_manager_s_pods(programs: Programs) -> None:
    made = speakers(programs, IMAGE)
    labels = daemon_set(made)["metadata"]["labels"]
    assert only(made, "DaemonSet")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for kind in ("Deployment", "Service", "PodDisruptionBudget"):
        selector = only(made, kind)["spec"]["selector"]
        assert not selector.get("matchLabels", selector).items() <= labels.items()


def test_a_speaker_runs_on_every_node_that_takes_traffic(programs: Programs) -> None:
    spec = daemon_set(speakers(programs, IMAGE))["spec"]
    assert spec["hostNetwork"]
    assert spec["dnsPolicy"] == "Default"
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    chosen = {"nodeSelector": {"rack": "1"}, "tolerations": [{"key": "a", "operator": "Exists"}]}
    spec = daemon_set(speakers(programs, {**IMAGE, **chosen}))["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "rack": "1"}
    assert spec["tolerations"] == chosen["tolerations"]


def test_only_the_speaker_has_a_token_that_only_reads(programs: Programs) -> None:
    made = speakers(programs, IMAGE)
    spec = daemon_set(made)["spec"]
    assert spec["automountServiceAccountToken"] is False
    having = {
        one["name"]
        for one in spec["containers"]
        for mount in one["volumeMounts"]
        if mount["name"] in {"token", "cloud-config", "passwords"}
    }
    assert having == {"bgp-speaker"}
    account = spec["serviceAccountName"]
    assert account != pod([one for one in made if one["kind"] != "DaemonSet"])["serviceAccountName"]
    role = next(one for one in made if one["metadata"]["name"] == ROLE.name)
    _, declared, _ = manifests([ROLE])
    assert role["rules"] == declared["rules"]
    binding = next(
        one for one in made if one.get("roleRef", {}).get("name") == role["metadata"]["name"]
    )
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}
    ]
    without = programs.render(
        **LOCAL, bgpSpeaker={"enabled": True, **IMAGE}, rbac={"create": False}
    )
    assert not [one for one in without if one["kind"].startswith("ClusterRole")]


@pytest.mark.parametrize(
    ("values", "user", "adds"),
    [
        (IMAGE, 0, ["DAC_OVERRIDE"]),
        ({"frr": {**IMAGE["frr"], "group": 105}}, 65532, []),
        (ON_HOSTS, 65532, []),
    ],
)
def test_containers_have_the_capabilities_that_they_need_and_write_nowhere(
    programs: Programs, values: dict[str, Any], user: int, adds: list[str]
) -> None:
    found = containers(speakers(programs, values))
    spec = daemon_set(speakers(programs, values))["spec"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for one in found.values():
        context = one["securityContext"]
        assert context["capabilities"]["drop"] == ["ALL"]
        assert not context["allowPrivilegeEscalation"]
        assert context["readOnlyRootFilesystem"]
        assert "privileged" not in context
        writable = {m["mountPath"] for m in one["volumeMounts"] if not m.get("readOnly")}
        assert writable == {"/run/frr"}
    context = found.pop("bgp-speaker")["securityContext"]
    assert context["runAsUser"] == user
    assert context["capabilities"].get("add", []) == adds
    assert set(found) == ({"zebra", "bfdd", "bgpd"} if "image" in values["frr"] else set())


def test_frr_on_the_hosts_is_reached_by_its_group(programs: Programs) -> None:
    spec = daemon_set(speakers(programs, ON_HOSTS))["spec"]
    assert spec["securityContext"]["supplementalGroups"] == [105]
    (volume,) = [one for one in spec["volumes"] if one["name"] == "frr"]
    assert volume["hostPath"] == {"path": "/run/frr", "type": "Directory"}


@pytest.mark.parametrize(
    ("host", "probed"),
    [("127.0.0.1", "127.0.0.1"), ("10.0.0.7", "10.0.0.7"), ("[::1]", "::1"), ("[::]", "127.0.0.1")],
)
def test_the_speaker_s_flags_are_known_and_probes_ask_where_it_serves(
    programs: Programs, host: str, probed: str
) -> None:
    one = containers(speakers(programs, {**IMAGE, "host": host, "port": 1234}))["bgp-speaker"]
    assert one["command"] == ["proreus", "bgp-speaker"]
    options, _ = flags.parse(SpeakerOptions, one["args"], "test", "")
    assert options.cloud_config == "/etc/proreus/cloud-config/local.yaml"
    assert options.metrics_bind_address == f"{host}:1234"
    assert options.frr_sockets == "/run/frr"
    assert [env["name"] for env in one["env"]] == ["NODE_NAME"]
    gets = [one[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [get["path"] for get in gets] == ["/livez", "/livez", "/readyz"]
    assert {(get["host"], get["port"]) for get in gets} == {(probed, "health")}


def test_a_cloud_config_of_their_own_is_for_several_clouds(programs: Programs) -> None:
    own = {"cloudConfig": {"existingSecret": "speakers", "key": "bgp.yaml"}}
    values = {"enabled": True, **IMAGE, **own}
    made = programs.render(**{**LOCAL, "cloudProvider": "aws,local"}, bgpSpeaker=values)
    (args,) = [one["args"] for one in containers(made).values() if one["name"] == "bgp-speaker"]
    assert "--cloud-config=/etc/proreus/cloud-config/bgp.yaml" in args
    secrets = {
        one["secret"]["secretName"]
        for one in daemon_set(made)["spec"]["volumes"]
        if "secret" in one
    }
    assert secrets == {"speakers"}


def test_the_values_that_the_guide_of_local_shows_make_speakers(programs: Programs) -> None:
    guide = ROOT.joinpath("docs", "guides", "local.md").read_text()
    (shown,) = re.findall(r"```yaml\n(# values\.yaml for BGP\n.*?)```", guide, re.DOTALL)
    values = yaml.safe_load(shown)
    assert "[ERROR]" not in programs.lint(**values)
    made = programs.render(**values)
    assert set(containers(made)) == {"bgp-speaker", "zebra", "bfdd", "bgpd"}
    config = values["cloudConfig"]
    read = read_config(config["content"], LocalConfig, source=config["key"], environment={})
    (peer,) = read.bgp.peers.values()
    directory, _, name = peer.password_file.rpartition("/")
    mounts = {
        one["name"]: one["mountPath"] for one in containers(made)["bgp-speaker"]["volumeMounts"]
    }
    assert (mounts["passwords"], bool(name)) == (directory, True)
    assert "NET_ADMIN" not in str(only(made, "Deployment"))


SYSTEM_PYTHON: Final = "/usr/bin/python3"
"""A Python that every user may run, unlike that of a virtual environment."""
NEEDED: Final = ("unshare", "nsenter", "setpriv", SYSTEM_PYTHON)
ASK: Final = """
import socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect(sys.argv[1])
    line.sendall(b"show version\\0")
    print(line.recv(65536).decode())
"""


@pytest.fixture
def node() -> Iterator[list[str]]:
    """What enters a machine with a read-only root and an empty /run/frr, as pods have it."""
    missing = [one for one in NEEDED if shutil.which(one) is None]
    if os.geteuid() or missing or not Path("/usr/lib/frr/bgpd").exists():
        pytest.skip("needs root and Debian's package frr")
    Path("/run/frr").mkdir(exist_ok=True)
    with ExitStack() as stack:
        held = stack.enter_context(
            subprocess.Popen(
                ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "cat"],
                stdin=subprocess.PIPE,
            )
        )
        assert held.stdin is not None
        stack.callback(held.kill)
        inner = Path(f"/proc/{held.pid}/task/{held.pid}/children")
        block_until("it runs", lambda: bool(inner.read_text().split()), pause=0.01)
        into = ["nsenter", f"--target={inner.read_text().split()[0]}", "--net", "--mount", "--pid"]
        for command in (
            "mount --make-rprivate /",
            "mount -t tmpfs -o mode=2777,gid=65532 tmpfs /run/frr",
            "mount -o remount,bind,ro /",
        ):
            subprocess.run([*into, *command.split()], check=True)
        yield into


def confined(template: dict[str, Any], container: dict[str, Any]) -> list[str]:
    """What starts a program with the rights of a container, as a container runtime does."""
    whole, own = template["spec"]["securityContext"], container["securityContext"]
    adds = [f"+{one.lower()}" for one in own["capabilities"].get("add", [])]
    groups = ",".join(map(str, [whole["fsGroup"], *whole.get("supplementalGroups", [])]))
    return [
        "setpriv", "--no-new-privs", f"--bounding-set={','.join(['-all', *adds])}",
        "--inh-caps=-all", f"--reuid={own['runAsUser']}", f"--regid={whole['runAsGroup']}",
        f"--groups={groups}",
    ]  # fmt: skip


def asked(node: Sequence[str], rights: Sequence[str], name: str) -> str:
    """What a program of FRR answers; "" if its socket cannot be opened."""
    command = [*node, *rights, SYSTEM_PYTHON, "-c", ASK, f"/run/frr/{name}.vty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return done.stdout


@pytest.mark.parametrize("by_group", [True, False])
def test_frr_runs_with_the_rights_of_the_pod_and_the_speaker_s_open_its_sockets(
    programs: Programs, node: list[str], *, by_group: bool
) -> None:
    values: dict[str, Any] = {"frr": {**IMAGE["frr"]}}
    if by_group:
        values["frr"]["group"] = grp.getgrnam("frrvty").gr_gid
    made = speakers(programs, values)
    template, found = daemon_set(made), containers(made)
    speaker = confined(template, found.pop("bgp-speaker"))
    with ExitStack() as stack:
        for name, one in found.items():
            command = [*node, *confined(template, one), *one["command"], *one["args"]]
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.terminate)

            def answers(name: str = name) -> bool:
                return "FRRouting" in asked(node, speaker, name)

            block_until(f"{name} answers the speaker", answers, 60.0)
            assert process.poll() is None
        nobody = ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups"]
        assert asked(node, nobody, "bgpd") == ""


@pytest.mark.long
async def test_passwords_and_bfd_work_with_the_rights_of_the_pod(programs: Programs) -> None:
    from ..providers.bgp_fabric import POOLS, WEB, Fabric  # noqa: PLC0415, TID252 - skips without FRR
    from ..providers.traffic import NODES  # noqa: PLC0415, TID252 - likewise

    made = speakers(programs, IMAGE)
    template, found = daemon_set(made), containers(made)
    del found["bgp-speaker"]
    rights = {name: confined(template, one) for name, one in found.items()}
    peer = Peer(
        address="10.9.0.1", as_=64513, bfd_profile="fast", password_file="there",
        connect_time=timedelta(seconds=1),
    )  # fmt: skip
    bgp = BGP(as_=64512, peers={"tor": peer}, bfd_profiles={"fast": BFDProfile()})
    with ExitStack() as stack:
        fabric = Fabric(stack, rights)
        fabric.route(neighbor=("password s3cret", "bfd"))
        engines = {name: Engine(str(one.directory)) for name, one in fabric.frrs.items()}
        for name, engine in engines.items():
            node_ = objects.node(name, addresses=NODES[name])
            desired = frr.desired(bgp, POOLS, node_, [ip_address(WEB)], {"tor": "s3cret"})
            assert (await engine.apply(desired)).problems == ()
        for engine in engines.values():

            async def is_up(engine: Engine = engine) -> bool:
                session = (await engine.sessions())["10.9.0.1"]
                return session.is_up and session.bfd == "Up"

            await until("the session and BFD are up", is_up)
        fabric.sent_to(WEB, *NODES)
