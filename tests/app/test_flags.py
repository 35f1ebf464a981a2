"""The command line, with kube's forms."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from proreus.app import config_file, flag_values, flags
from proreus.app.options import Options, problems


def parsed(*argv: str) -> Options:
    return flags.parse(Options, ["--cloud-provider=x", *argv], "ccm", "")[0]


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (("--leader-elect=false",), "leader_elect", False),
        (("--leader-elect",), "leader_elect", True),
        (("--leader-elect=T",), "leader_elect", True),
        (("-v=4",), "v", 4),
        (("-v4",), "v", 4),
        (("-v", "4"), "v", 4),
        (("--v=2",), "v", 2),
        (("--v", "2"), "v", 2),
        (("--node-monitor-period=1m30s",), "node_monitor_period", 90.0),
        (("--node_monitor_period=500ms",), "node_monitor_period", 0.5),
        (("--cluster-name", "a"), "cluster_name", "a"),
        (("--cluster-name=a=b_c",), "cluster_name", "a=b_c"),
        (("--kube-api-qps=12.5",), "kube_api_qps", 12.5),
        (("--controllers=*,-service",), "controllers", ("*", "-service")),
        (("--controllers=service", "--controllers=cloud-node"), "controllers", ("service", "cloud-node")),
        (("--node-deletion-interval=0",), "node_deletion_interval", 0.0),
        (("--logging-format=json",), "logging_format", "json"),
        (("--log-flush-frequency=10s",), "log_flush_frequency", 10.0),
        (("--vmodule=context=4,cloud_*=2,",), "vmodule", (("context", 4), ("cloud_*", 2))),
        (("--vmodule=a=1", "--vmodule", "b=2"), "vmodule", (("a", 1), ("b", 2))),
        (("--vmodule=",), "vmodule", ()),
        (("--bind-address=::",), "bind_address", "::"),
        (("--bind-address=",), "bind_address", ""),
        (("--tls-curve-preferences=4588,29",), "tls_curve_preferences", (4588, 29)),
        (("--tls-sni-cert-key=a,b", "--tls-sni-cert-key=c,d:*.x,y"), "tls_sni_cert_key", (("a", "b", ()), ("c", "d", ("*.x", "y")))),
        (("--feature-gates=A=true", "--feature-gates=B=F"), "feature_gates", (("A", True), ("B", False))),
        (("--kube-api-content-type=application/json",), "kube_api_content_type", "application/json"),
        (("--cloud-config-secret=a/b/c.conf",), "cloud_config_secret", "a/b/c.conf"),
        (("--cidr-allocator-type=CloudAllocator",), "cidr_allocator_type", "IPAMFromCloud"),
        (("--version",), "version", "true"),
        (("--version=raw",), "version", "raw"),
        (("--version=F",), "version", "false"),
    ],
)  # fmt: skip
def test_every_form_that_kube_accepts_parses(
    argv: tuple[str, ...], field: str, value: object
) -> None:
    assert getattr(parsed(*argv), field) == value


def test_all_problems_are_reported_together_with_their_flags() -> None:
    with pytest.raises(flags.FlagError) as caught:
        parsed(
            "--leader-elct=false", "--node-monitor-period=5", "--concurrent-node-syncs=0",
            "--v=much", "--leader-elect=perhaps", "stray", "--leader-elect-resource-lock=endpoints",
            "--kube-api-qps=fast", "--logging-format=xml", "--log-flush-frequency=0",
            "--vmodule=context", "--vmodule=a=b",
        )  # fmt: skip
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 11
    for part in (
        "unknown flag --leader-elct, did you mean --leader-elect",
        "--node-monitor-period: '5' must be a duration",
        "--concurrent-node-syncs: '0' must be at least 1",
        "--v: 'much' must be a whole number",
        "--leader-elect: 'perhaps' must be true or false",
        "unexpected argument 'stray'",
        "--leader-elect-resource-lock: 'endpoints' must be leases",
        "--kube-api-qps: 'fast' must be a number",
        "--logging-format: 'xml' must be text or json",
        "--log-flush-frequency: '0' must be more than 0",
        "--vmodule: 'context,a=b' must be a list of pattern=N, such as context=4,cloud_*=2",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("--bind-address=localhost", "must be an IP address"),
        ("--secure-port=65536", "must be a port, 0 to 65535"),
        ("--secure-port=-1", "must be a port"),
        ("--tls-min-version=TLS12", "must be one of VersionTLS10, VersionTLS11"),
        ("--tls-curve-preferences=X25519", "must be a list of whole numbers"),
        ("--tls-sni-cert-key=cert.pem", "must be certificate,key or certificate,key:domain"),
        ("--feature-gates=A", "must be a list of Name=true or Name=false"),
        ("--feature-gates=A=maybe", "must be a list of Name=true or Name=false"),
        ("--kube-api-content-type=text/plain", "must be one of application/cbor"),
        ("--version=v1.36.0", "must be true, false or raw"),
        ("--cloud-config-secret=kube-system/cloud", "must be namespace/name/key"),
        ("--authentication-token-webhook-cache-ttl=-1s", "must be a duration"),
        ("--http2-max-streams-per-connection=-1", "must be at least 0"),
    ],
)
def test_a_wrong_value_is_refused_by_its_flag(flag: str, problem: str) -> None:
    with pytest.raises(flags.FlagError) as caught:
        parsed(flag)
    (said,) = caught.value.problems
    assert said.startswith(flag.partition("=")[0] + ": ")
    assert problem in said


def test_help_shows_durations_as_they_are_written_and_no_empty_defaults() -> None:
    text = " ".join(flags.parser(Options, "ccm", "").format_help().split())
    assert "(default 12h)" in text
    assert "(default 5m)" in text
    assert "(default 15s)" in text
    assert "(default '')" not in text
    assert "(default none)" not in text


def test_removed_klog_flags_are_accepted_and_named() -> None:
    _, removed = flags.parse(
        Options, ["--logtostderr=true", "--log-dir=/x", "--skip-headers"], "c", ""
    )
    assert removed == ("log-dir", "logtostderr", "skip-headers")


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "1m 3s", "-1s", "1s5"])
def test_a_text_that_is_no_duration_of_go_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        flag_values.duration(text)


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("--leader-elect-lease-duration=10s",), ["--leader-elect-lease-duration"]),
        (("--leader-elect-retry-period=9s",), ["--leader-elect-renew-deadline"]),
        (("--leader-elect=false", "--leader-elect-retry-period=9s"), []),
        (("--leader-elect-resource-name=", "--leader-elect-resource-namespace=a.b"), ["--leader-elect-resource-name", "--leader-elect-resource-namespace"]),
        (("--leader-elect-resource-name=My_lease",), ["--leader-elect-resource-name"]),
        (("--leader-elect-resource-name=my.lease-1", "--leader-elect-resource-namespace=a-1"), []),
        (("--leader-elect=false", "--leader-elect-resource-name="), []),
        (("--metrics-bind-address=nowhere",), ["--metrics-bind-address"]),
        (("--metrics-bind-address=0",), []),
        (("--cloud-config=f", "--cloud-config-secret=a/b/c"), ["--cloud-config-secret"]),
        (("--tls-cert-file=c", "--webhook-tls-private-key-file=k"), ["--tls-private-key-file", "--webhook-tls-cert-file"]),
        (("--tls-cert-file=c", "--tls-private-key-file=k"), []),
        (("--secure-port=10260",), []),
        (("--secure-port=10260", "--webhooks=*"), ["--webhook-secure-port"]),
        (("--secure-port=0", "--webhook-secure-port=0", "--webhooks=*"), []),
        (("--ssh-user=core",), ["--ssh-keyfile", "--ssh-user"]),
        (("--ssh-keyfile=f", "--controllers=ssh-keys"), ["--ssh-user"]),
        (("--ssh-user=core", "--ssh-keyfile=f", "--controllers=*,ssh-keys"), []),
        (("--cloud-provider=", "--metrics-bind-address=x:99999"), ["--cloud-provider", "--metrics-bind-address"]),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_together_are_named(
    argv: tuple[str, ...], named: list[str]
) -> None:
    assert [problem.partition(":")[0] for problem in problems(parsed(*argv))] == named


def test_help_shows_every_flag_in_its_group_with_its_default() -> None:
    text = flags.parser(Options, "ccm", "").format_help()
    for field, flag in flags.flags_of(Options).items():
        assert f"--{field.replace('_', '-')}" in text
        assert f"{flag.group} flags:" in text
    assert "logtostderr" not in text
    assert "(default" in text


OWN = {
    "user_agent": flags.Flag("nimbus", "More.", repeated=True),
    "wait_for": flags.Flag("nimbus", "How many.", flag_values.integer),
}


def with_own(*argv: str, asked: list[str] | None = None) -> Options:
    def own(name: str) -> Mapping[str, flags.Flag] | None:
        if asked is not None:
            asked.append(name)
        return OWN if name == "nimbus" else None

    return flags.parse(Options, argv, "ccm", "", file=config_file.read, of_provider=own)[0]


def test_flags_of_the_provider_are_read_like_others() -> None:
    given = with_own(
        "--user-agent=a/b",
        "--cloud-provider=nimbus",
        "--wait_for",
        "3",
        "--user-agent",
        "c d",
        "-v=2",
    )
    assert given.provider_flags == {"user-agent": ("a/b", "c d"), "wait-for": 3}
    assert given.v == 2


def test_flags_of_the_provider_and_its_name_may_be_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "proreus.conf"
    path.write_text("cloud-provider: nimbus\nwait-for: 3\nuser-agent: [a/b]\n")
    assert with_own(f"--config={path}").provider_flags == {"user-agent": ("a/b",), "wait-for": 3}


def test_the_provider_is_not_asked_for_flags_where_none_is_needed() -> None:
    asked: list[str] = []
    assert with_own("--cloud-provider=nimbus", "-v=2", asked=asked).provider_flags == {}
    assert asked == []


def test_problems_with_flags_of_the_provider_are_reported_with_others() -> None:
    with pytest.raises(flags.FlagError) as refused:
        with_own("--cloud-provider=nimbus", "--wait-for=soon", "--usr-agent=x", "-v=much")
    assert set(refused.value.problems) == {
        "--wait-for: 'soon' must be a whole number",
        "unknown flag --usr-agent, did you mean --user-agent?",
        "--v: 'much' must be a whole number",
    }


def test_the_help_has_the_flags_of_the_provider(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        with_own("--cloud-provider=nimbus", "--help")
    text = capsys.readouterr().out
    assert "nimbus flags:" in text
    assert "--wait-for INT" in text


def test_a_provider_that_is_not_there_may_know_the_flags_that_are_unknown() -> None:
    with pytest.raises(flags.FlagError) as refused:
        with_own("--cloud-provider=stratus", "--own", "x", "--other=1")
    (said,) = refused.value.problems
    assert said.endswith("it is not installed: --own --other")


def test_a_taint_of_machines_without_power_needs_witnesses() -> None:
    taints = Options(cloud_provider="aws", node_out_of_service_taint=True)
    assert problems(taints) == ()
    assert problems(msgspec.structs.replace(taints, node_deletion_witnesses=0)) == (
        "--node-out-of-service-taint: needs witnesses; give --node-deletion-witnesses 1 or more",
    )
