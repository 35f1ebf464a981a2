"""The command line of `proreus bgp-speaker`, and the files that it reads."""

from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml

from proreus.app.cli import main
from proreus.app.speaker.settings import SettingsFile, passwords
from proreus.app.speaker.show import Shown, lines
from proreus.cloudprovider import ConfigError
from proreus.providers.local.bgp.config import BGP, Peer
from proreus.providers.local.bgp.plan import Decision
from proreus.providers.local.bgp.sessions import Session

CONFIG = """
pools: {default: {addresses: [192.0.2.64/27]}}
gateway: {enabled: false}
bgp: {as: 64512, peers: {tor: {address: 10.9.0.1, as: 64513}}}
"""


def test_every_mistake_is_named_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    file = tmp_path / "local.yaml"
    file.write_text(CONFIG.replace("64513", "0"))
    command = ["bgp-speaker", f"--cloud-config={file}", f"--kubeconfig={tmp_path}/none"]
    assert main(command) == 2
    shown = capsys.readouterr().err
    assert "--node-name: give it" in shown
    assert "as: 0 is not an AS number" in shown
    assert f"{tmp_path}/none" in shown


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--metrics-bind-address=10271", "must be host:port"),
        ("--period=0s", "--period"),
        ("--cloud-provider=local", "--cloud-provider"),
    ],
)
def test_wrong_flags_are_named(capsys: pytest.CaptureFixture[str], flag: str, words: str) -> None:
    assert main(["bgp-speaker", flag]) == 2
    assert words in capsys.readouterr().err


def test_it_prints_roles_that_let_it_read_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bgp-speaker", "--roles"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["kind"] for one in printed] == [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
    ]
    verbs = {verb for rule in printed[1]["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}


def test_a_cloud_config_without_peers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "local.yaml"
    file.write_text("pools: {default: {addresses: [192.0.2.64/27]}}")
    with pytest.raises(ConfigError, match="peers: give one"):
        SettingsFile(str(file))


def test_the_last_good_cloud_config_counts(tmp_path: Path) -> None:
    file = tmp_path / "local.yaml"
    file.write_text(CONFIG)
    settings = SettingsFile(str(file))
    file.write_text(CONFIG.replace("64513", "0"))
    assert settings.refresh().bgp.peers["tor"].as_ == 64513
    assert "0 is not an AS number" in settings.problems[0]
    file.unlink()
    assert settings.refresh().bgp.peers["tor"].as_ == 64513
    assert settings.problems
    file.write_text(CONFIG.replace("64513", "64514"))
    assert settings.refresh().bgp.peers["tor"].as_ == 64514
    assert settings.problems == ()


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"s3cret!#$%^&*\n", "s3cret!#$%^&*"),
        (b"x" * 80, "x" * 80),
        (b"x" * 81, None),
        (b"\n", None),
        (b"two words", None),
        (b"two\nneighbor 10.0.0.1 remote-as 1", None),
        ("pässword".encode(), None),
        (None, None),
    ],
)
def test_passwords_are_read_of_files_and_never_shown(
    tmp_path: Path, content: bytes | None, password: str | None
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    peer = Peer(address="10.9.0.1", as_=64513, password_file=str(file))
    found, problems = passwords(BGP(as_=64512, peers={"tor": peer}))
    assert found == {"tor": password}
    assert bool(problems) is (password is None)
    for problem in problems:
        field, _, reason = problem.partition(f" {file}: ")
        assert field == "bgp peers tor password-file"
        assert reason
        assert not any(part in reason for part in ("two", "neighbor", "xxx", "ssword"))


def test_the_state_of_a_node_is_shown_and_judged() -> None:
    addresses = [ip_address(one) for one in ("192.0.2.66", "192.0.2.9", "2001:db8::1")]
    up = Session(peer="10.9.0.1", state="Established", prefixes=2, bfd="Up")
    down = Session(peer="10.9.0.2", state="Active", reason="Hold Timer Expired")
    shown = Shown(
        decision=Decision(
            announced=frozenset(addresses[:2]), withheld={addresses[2]: "no endpoint is ready"}
        ),
        peers={"tor": "10.9.0.1", "spine": "10.9.0.2", "edge": "10.9.0.3"},
        sessions={"10.9.0.1": up, "10.9.0.2": down},
        differences=("router bgp 64512",),
        problems=("bgpd of FRR does not answer",),
    )
    assert not shown.is_well
    assert list(lines(shown)) == [
        "ADDRESS      ANNOUNCED  WHY NOT",
        "192.0.2.9    yes",
        "192.0.2.66   yes",
        "2001:db8::1  no         no endpoint is ready",
        "",
        "PEER   ADDRESS   STATE        PREFIXES  BFD  ENDED LAST BY",
        "tor    10.9.0.1  Established  2         Up",
        "spine  10.9.0.2  Active       0         -    Hold Timer Expired",
        "edge   10.9.0.3  unknown",
        "problem: bgpd of FRR does not answer",
        "FRR lacks: router bgp 64512",
    ]


@pytest.mark.parametrize(
    ("peers", "more", "well"),
    [
        ({}, {}, "well"),
        ({"tor": "10.9.0.1"}, {}, "well"),
        ({"tor": "10.9.0.2"}, {}, ""),
        ({"tor": "10.9.0.3"}, {}, ""),
        ({}, {"differences": ("x",)}, ""),
        ({}, {"problems": ("x",)}, ""),
    ],
)
def test_all_is_well_if_every_session_is_up_and_frr_as_it_should_be(
    peers: dict[str, str], more: dict[str, tuple[str, ...]], well: str
) -> None:
    sessions = {
        "10.9.0.1": Session(peer="10.9.0.1", state="Established"),
        "10.9.0.2": Session(peer="10.9.0.2", state="Idle"),
    }
    shown = Shown(decision=Decision(), peers=peers, sessions=sessions, **more)
    assert shown.is_well is bool(well)
