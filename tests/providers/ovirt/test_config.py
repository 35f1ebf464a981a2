"""The cloud-config of the provider `ovirt`: both official files, and what is wrong with them."""

from datetime import timedelta
from pathlib import Path

import pytest

from proreus.app import command_line, run
from proreus.app.options import Options
from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.ovirt import OVirtCloud
from proreus.providers.ovirt.config import Order, OVirtConfig

from ...app.test_cli import CLUSTER  # noqa: TID252 - pytest imports tests by path

IN_TREE = """
[connection]
uri = https://engine.example.org:8443/ovirt-engine/api
username = k8s@internal
password = "secret/+=="

[filters]
vms = tag=kubernetes
"""
EXTERNAL = """\
url=https://engine.example.org/ovirt-engine/api
username=k8s@internal
password=secret/+==
insecure=false
cafile=

[filters]
vmsquery=tag=kubernetes
"""


def config(text: str) -> OVirtConfig:
    return read(text, OVirtConfig, source="ovirt.conf")


def test_the_file_of_old_kubernetes_is_read_unmodified() -> None:
    found = config(IN_TREE)
    assert found.connection.api == "https://engine.example.org:8443/ovirt-engine/api"
    assert found.connection.engine == "https://engine.example.org:8443/ovirt-engine"
    assert (found.connection.username, found.connection.password) == ("k8s@internal", "secret/+==")
    assert found.filters.search == "tag=kubernetes"
    assert not found.connection.is_external
    assert found.client.timeout == timedelta(seconds=60)
    assert found.addresses.order is Order.ALL


@pytest.mark.parametrize("text", [EXTERNAL, f"[connection]\n{EXTERNAL}"])
def test_the_file_of_the_external_provider_is_read_with_and_without_its_section(text: str) -> None:
    found = config(text)
    assert found.connection.api == "https://engine.example.org/ovirt-engine/api"
    assert (found.connection.username, found.connection.password) == ("k8s@internal", "secret/+==")
    assert found.filters.search == "tag=kubernetes"
    assert found.connection.is_external
    assert not found.connection.insecure


def test_the_user_is_officially_the_administrator_and_all_machines_are_meant() -> None:
    found = config("[connection]\nuri = https://e/ovirt-engine/api\npassword = p\n")
    assert found.connection.username == "admin@internal"
    assert found.filters.search == ""


@pytest.mark.parametrize(
    ("uri", "engine"),
    [
        ("https://e/ovirt-engine/api/", "https://e/ovirt-engine"),
        ("https://e/ovirt-engine/api/v3", "https://e/ovirt-engine"),
        ("https://e/ovirt-engine/api/v4/", "https://e/ovirt-engine"),
        ("https://e/virt/ovirt-engine/api", "https://e/virt/ovirt-engine"),
        ("https://e/api", "https://e/ovirt-engine"),
    ],
)
def test_the_engine_is_above_its_api(uri: str, engine: str) -> None:
    assert config(f"[connection]\nuri = {uri}\npassword = p\n").connection.engine == engine


def test_the_password_may_be_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVIRT_PASSWORD", "of the environment")
    found = read(
        "[connection]\nuri = https://e/ovirt-engine/api\n",
        OVirtConfig,
        source="ovirt.conf",
        variables=OVirtCloud.config_environment,
    )
    assert found.connection.password == "of the environment"


def test_everything_that_is_wrong_is_told_at_once_and_names_its_key() -> None:
    text = """
[connection]
uri = engine.example.org
username = admin
cafiel = x
[filters]
vms = tag=a page 2
vmsquery = tag=b
[client]
timeout = 0s
[addresses]
order = sorted
external = 10.0.0.0/99
"""
    with pytest.raises(ConfigError) as refused:
        config(text)
    told = "\n".join(refused.value.problems)
    for part in (
        "cafiel: is unknown; did you mean cafile?",
        "vms: take out `page`",
        "vmsquery: is another search than vms",
        "timeout: must be more",
        "order: must be one of all, in-tree, external",
    ):
        assert part in told
    with pytest.raises(ConfigError) as refused:
        config(text.replace("cafiel = x\n", "").replace("order = sorted\n", "order = external\n"))
    told = "\n".join(refused.value.problems)
    for part in (
        "uri: give a URL",
        "password: is required",
        "username: give it with its profile",
        "external: '10.0.0.0/99' is not a CIDR",
        "external: has no effect",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "uri: is required"),
        ("uri = https://e/ovirt-engine", "uri: must end with /ovirt-engine/api"),
        ("url = https://e/ovirt-engine/api?a=b", "url: give it without"),
        ("uri = https://u:hidden@e/ovirt-engine/api", "uri: give the user and the password as"),
        ("uri = https://e/api\nurl = https://f/api", "url: is another address than uri"),
    ],
)
def test_a_wrong_address_is_told_without_showing_it(line: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(f"[connection]\npassword = p\n{line}\n")
    assert problem in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_without_a_config_the_provider_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="needs one"):
        OVirtCloud(None)


def test_no_secret_is_shown() -> None:
    assert "secret/+==" not in repr(config(IN_TREE))


@pytest.mark.parametrize(("name", "text"), [("ovirt", IN_TREE), ("ovirt-cloud-provider", EXTERNAL)])
def test_the_official_arguments_configure_the_provider(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of ovirt-cloud-provider-deployment.yaml, and of a cloud-controller-manager 1.14."""
    kubeconfig, file = tmp_path / "kubeconfig", tmp_path / "ovirt.conf"
    kubeconfig.write_text(CLUSTER)
    file.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    args = [
        f"--cloud-provider={name}", f"--cloud-config={file}", "--leader-elect=true",
        "--use-service-account-credentials", "--allocate-node-cidrs=true",
        "--configure-cloud-routes=true", "--cluster-cidr=172.17.0.0/16",
    ]  # fmt: skip
    options = command_line.parse(Options, args, "ccm", run.DESCRIPTION).options
    provider, _ = run._configured(options)
    assert isinstance(provider, OVirtCloud)
