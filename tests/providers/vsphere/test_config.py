"""The cloud-config: official files of each age in INI and YAML, Secrets, variables, mistakes."""

from pathlib import Path

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.vsphere import VSphereCloud
from proreus.providers.vsphere.config import VCenter, VSphereConfig, vcenters
from proreus.providers.vsphere.secrets import credentials, mounted, secret_files

INI = """
[Global]
user = "u"
password = "p"
port = "443"
insecure-flag = "1"
soap-roundtrip-count = "3"
api-disable = true
api-binding = ":43001"
secrets-directory = "/x"
datacenters = "east, west"

[VirtualCenter "10.0.0.1"]

[VirtualCenter "tenant"]
server = "10.0.0.2"
port = "8443"
user = "own"
password = "own-p"
datacenters = "dc/in/folder"
ca-file = /ca.pem
thumbprint = "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD"
ip-family = "ipv6, IPv4"

[Labels]
region = k8s-region
zone = k8s-zone

[Nodes]
internal-network-subnet-cidr = "192.0.2.0/24,198.51.100.0/24"
external-vm-network-name = "External/Outbound Traffic"
exclude-internal-network-subnet-cidr = "192.0.2.0/24,fe80::1/128"
"""

YAML = """
global:
  user: u
  password: p
  port: 443
  insecureFlag: true
  soapRoundtripCount: 3
  apiDisable: true
  apiBinding: ":43001"
  secretsDirectory: /x
  datacenters: [east, west]
vcenter:
  10.0.0.1:
    server: 10.0.0.1
  tenant:
    server: 10.0.0.2
    port: 8443
    user: own
    password: own-p
    datacenters: [dc/in/folder]
    caFile: /ca.pem
    thumbprint: "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD"
    ipFamily: [ipv6, IPv4]
labels:
  region: k8s-region
  zone: k8s-zone
nodes:
  internalNetworkSubnetCidr: 192.0.2.0/24,198.51.100.0/24
  externalVmNetworkName: External/Outbound Traffic
  excludeInternalNetworkSubnetCidr: "192.0.2.0/24,fe80::1/128"
"""

IN_TREE = """
[Global]
user = "u"
password = "p"
insecure-flag = "1"
datacenter = "dc"
server = "vc.example.org"
vm-uuid = "1"
working-dir = "kubernetes"
[Workspace]
server = "vc.example.org"
datacenter = "dc"
folder = "kubernetes"
default-datastore = "ds"
resourcepool-path = "rp"
[Disk]
scsicontrollertype = pvscsi
[Network]
public-network = "VM Network"
"""


def config(text: str, **environment: str) -> VSphereConfig:
    def refuse(warning: str) -> None:
        raise AssertionError(warning)

    variables = VSphereCloud.config_environment
    return read(
        text,
        VSphereConfig,
        source="vsphere.conf",
        variables=variables,
        environment=environment,
        warn=refuse,
    )


@pytest.mark.parametrize("text", [INI, YAML], ids=["INI", "YAML"])
def test_both_official_dialects_say_the_same(text: str) -> None:
    found = config(text)
    assert vcenters(found, {}) == (
        VCenter(
            name="10.0.0.1", server="10.0.0.1", port=443, user="u", password="p", verify=False,
            ca_file="", thumbprint="", datacenters=("east", "west"), families=("ipv4",),
        ),
        VCenter(
            name="tenant", server="10.0.0.2", port=8443, user="own", password="own-p", verify=False,
            ca_file="/ca.pem", thumbprint="aabbccddeeff00112233445566778899aabbccdd",
            datacenters=("dc/in/folder",), families=("ipv6", "ipv4"),
        ),
    )  # fmt: skip
    assert (found.labels.zone, found.labels.region) == ("k8s-zone", "k8s-region")
    assert found.nodes.external_vm_network_name == "External/Outbound Traffic"
    assert found.global_.secrets_directory == "/x"


def test_the_in_tree_file_is_read_without_a_warning() -> None:
    (found,) = vcenters(config(IN_TREE), {})
    assert (found.server, found.datacenters, found.verify) == ("vc.example.org", ("dc",), False)


def test_a_file_may_leave_all_to_variables() -> None:
    found = config(
        "", VSPHERE_VCENTER="vc", VSPHERE_USER="u", VSPHERE_PASSWORD="p", VSPHERE_DATACENTER="a,b",
        VSPHERE_LABEL_ZONE="z", VSPHERE_LABEL_REGION="r",
        VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR="10.0.0.0/8",
    )  # fmt: skip
    (only,) = vcenters(found, {})
    assert (only.server, only.user, only.datacenters) == ("vc", "u", ("a", "b"))
    assert found.labels
    assert found.nodes.internal_network_subnet_cidr == ("10.0.0.0/8",)


def test_a_mounted_secret_goes_before_the_file() -> None:
    found = vcenters(config(INI), {"10.0.0.2": ("s", "sp"), "tenant": ("no", "no")})
    assert [(one.user, one.password) for one in found] == [("u", "p"), ("s", "sp")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "name at least one vCenter"),
        ("[Global]\nserver = a\nuser = u\n", "give user and password"),
        ('[Global]\nserver = a\nthumbprint = "abc"\n', "thumbprint"),
        ("[Global]\nserver = a\nip-family = ipv5\n", "ip-family"),
        ("[Global]\nserver = a\nport = 70000\n", "port"),
        (
            "[Global]\nserver = a\n[Nodes]\nexclude-external-network-subnet-cidr = 1.2.3\n",
            "is not a CIDR",
        ),
        ("[Global]\nserver = a\n[Client]\ntimeout = 0s\n", "timeout"),
        ("[Global]\nuser = u\npassword = planted-secret\nport = x\n", "port"),
    ],
)
def test_mistakes_name_the_key_and_the_remedy(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        config(text)
    assert "planted-secret" not in str(raised.value)


def test_a_config_shows_no_secret() -> None:
    found = config(INI)
    assert "own-p" not in repr(found)
    assert "own-p" not in repr(vcenters(found, {}))


def test_a_secret_has_two_forms() -> None:
    data = {
        "10.0.0.1.username": "u\n", "10.0.0.1.password": "p\n",
        "server_a": "fd01::1", "username_a": "ua", "password_a": "pa",
    }  # fmt: skip
    assert credentials(data) == {"10.0.0.1": ("u", "p"), "fd01::1": ("ua", "pa")}


@pytest.mark.parametrize(
    ("data", "problems"),
    [
        ({"a.username": "u"}, ["a: has no password"]),
        ({"server_a": "x", "username_a": "u"}, ["x: has no password"]),
        ({"username_a": "u", "password_b": "p"}, ["username_a: must be", "password_b: must be"]),
        ({"token": "t", "a.password": "p"}, ["token: must be", "a: has no username"]),
        ({"a.vc-session-manager-url": "x"}, ["shared sessions"]),
    ],
)
def test_a_secret_with_mistakes_tells_all(data: dict[str, str], problems: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        credentials(data)
    assert len(raised.value.problems) == len(problems)
    for problem in problems:
        assert problem in str(raised.value)


def test_files_of_a_secret_are_followed_before_they_are_there(tmp_path: Path) -> None:
    assert secret_files(str(tmp_path / "no"), ["a"]) == (
        f"{tmp_path}/no/a.password", f"{tmp_path}/no/a.username",
    )  # fmt: skip
    assert mounted(str(tmp_path / "no")) == {}
    (tmp_path / "server_x").write_text("fd00::1")
    (tmp_path / "..data").mkdir()
    assert secret_files(str(tmp_path), []) == (f"{tmp_path}/server_x",)
