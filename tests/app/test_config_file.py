"""The file of --config: flags by their names."""

from pathlib import Path

import pytest

from proreus.app import config_file, flags
from proreus.app.options import Options


def parsed(text: str, tmp_path: Path, *argv: str) -> Options:
    path = tmp_path / "proreus.conf"
    path.write_text(text)
    options, _ = flags.parse(Options, [f"--config={path}", *argv], "ccm", "", file=config_file.read)
    return options


YAML = """\
apiVersion: proreus/v1alpha1
kind: Configuration
cloud-provider: simulated
leader-elect: false
leader-elect-lease-duration: 1m30s
v: 4
controllers: ["*", "-route"]
cluster-cidr: 10.244.0.0/16,fd00:10::/48
kube-api-qps: 12.5
cluster_name: 123
feature-gates: {A: true, B: false}
vmodule: [context=4, cloud_*=2]
tls-sni-cert-key: ["a.crt,a.key:a.example,b.example", "c.crt,c.key"]
cloud-config:
"""
JSON = """\
{"cloud-provider": "simulated", "leader-elect": false, "controllers": ["*", "-route"], "v": 4,
 "leader-elect-lease-duration": "1m30s", "vmodule": {"context": 4, "cloud_*": 2},
 "kube-api-qps": 12.5, "cluster-name": "123", "feature-gates": "A=true,B=false",
 "cluster-cidr": ["10.244.0.0/16", "fd00:10::/48"],
 "tls-sni-cert-key": ["a.crt,a.key:a.example,b.example", "c.crt,c.key"]}
"""


@pytest.mark.parametrize("text", [YAML, JSON])
def test_a_file_gives_what_the_command_line_would(text: str, tmp_path: Path) -> None:
    wanted, _ = flags.parse(
        Options,
        [
            f"--config={tmp_path / 'proreus.conf'}", "--cloud-provider=simulated",
            "--leader-elect=false", "--leader-elect-lease-duration=1m30s", "-v=4",
            "--controllers=*,-route", "--cluster-cidr=10.244.0.0/16,fd00:10::/48",
            "--kube-api-qps=12.5", "--cluster-name=123", "--feature-gates=A=true,B=false",
            "--vmodule=context=4,cloud_*=2", "--tls-sni-cert-key=a.crt,a.key:a.example,b.example",
            "--tls-sni-cert-key=c.crt,c.key",
        ], "ccm", "",
    )  # fmt: skip
    assert parsed(text, tmp_path) == wanted
    assert wanted.tls_sni_cert_key == (
        ("a.crt", "a.key", ("a.example", "b.example")),
        ("c.crt", "c.key", ()),
    )


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    options = parsed(YAML, tmp_path, "--leader-elect", "--controllers=service", "-v2")
    assert (options.leader_elect, options.controllers, options.v) == (True, ("service",), 2)
    assert options.leader_elect_lease_duration == 90


def test_every_problem_of_file_and_command_line_is_reported_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(flags.FlagError) as caught:
        parsed(
            """\
apiVersion: proreus/v2
kind: [Configuration]
leader-elct: true
leader-elect: {enabled: true}
cluster-name: [a, b]
controllers: [["*"], route]
cluster-cidr: {a: b}
node-monitor-period: 5
v: much
config: other.yaml
secure-port: 1
secure_port: 2
feature-gates: {A: }
cloud-provider: a
cloud-provider: b
""",
            tmp_path,
            "--kube-api-qps=fast",
        )
    place = f"{tmp_path / 'proreus.conf'}:"
    said = [problem.removeprefix(place) for problem in caught.value.problems]
    assert sorted(said) == sorted([
        "15: cloud-provider is given twice",
        "1: apiVersion: must be proreus/v1alpha1, or left out",
        "2: kind: must be Configuration, or left out",
        "3: leader-elct: there is no such flag, did you mean leader-elect?",
        "4: leader-elect: must be one value, not a mapping",
        "5: cluster-name: must be one value, not a list",
        "6: controllers: the elements of a list or mapping must be plain values, not a list",
        "7: cluster-cidr: must be a list, not a mapping",
        "8: node-monitor-period: '5' must be a duration such as 30s, 5m or 1h30m",
        "9: v: 'much' must be a whole number",
        "10: config: cannot be given in a file; give it on the command line",
        "12: secure_port: is given twice",
        "13: feature-gates: the elements of a list or mapping must be plain values, not null",
        "--kube-api-qps: 'fast' must be a number",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"- a\n", ":1: must be a mapping of names to values"),
        (b"a: [\n", ":2: is not YAML"),
        (b'{"a" 1}', ":1: is not JSON"),
        (b"v: \xff", "is not UTF-8"),
        (None, "cannot read"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_problem(
    content: bytes | None, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(flags.FlagError) as caught:
        flags.parse(Options, [f"--config={path}"], "ccm", "", file=config_file.read)
    (said,) = caught.value.problems
    assert str(path) in said
    assert problem in said
