"""The official sections of NSX-T are read in both dialects; mistakes name the key and the remedy."""

from pathlib import Path

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.vsphere import VSphereCloud
from proreus.providers.vsphere.config import VSphereConfig
from proreus.providers.vsphere.nsxt.config import Reference, classes

INI = """
[Global]
server = a
user = u
password = p

[LoadBalancer]
ip-pool-name = pool1
size = MEDIUM
lb-service-id = 4711
tier1-gateway-path = /infra/tier-1s/12345
snat-disabled = true
tcp-app-profile-name = default-tcp-lb-app-profile
udp-app-profile-path = /infra/lb-app-profiles/udp
tags = "{\\"tag1\\": \\"value1\\", \\"owner\\": \\"me\\"}"

[LoadBalancerClass "public"]
ip-pool-id = 42

[LoadBalancerClass "private"]
tcp-app-profile-path = /infra/lb-app-profiles/tcp2

[NSXT]
host = nsxt-server
user = admin
password = planted-secret
insecure-flag = true
remote-auth = true

[Route]
router-path = /infra/tier-1s/12345
"""

YAML = """
global:
  server: a
  user: u
  password: p
loadBalancer:
  ipPoolName: pool1
  size: MEDIUM
  lbServiceId: "4711"
  tier1GatewayPath: /infra/tier-1s/12345
  snatDisabled: true
  tcpAppProfileName: default-tcp-lb-app-profile
  udpAppProfilePath: /infra/lb-app-profiles/udp
  tags:
    tag1: value1
    owner: me
loadBalancerClass:
  public:
    ipPoolId: "42"
  private:
    tcpAppProfilePath: /infra/lb-app-profiles/tcp2
nsxt:
  host: nsxt-server
  user: admin
  password: planted-secret
  insecureFlag: true
  remoteAuth: true
route:
  routerPath: /infra/tier-1s/12345
"""

BASE = "[Global]\nserver = a\nuser = u\npassword = p\n"
NSXT = "[NSXT]\nhost = n\nuser = u\npassword = p\n"
WHOLE = (
    "[LoadBalancer]\nip-pool-id = p\ntier1-gateway-path = /infra/tier-1s/t\n"
    "tcp-app-profile-name = t\nudp-app-profile-name = u\n"
)


def config(text: str, name: str = "vsphere.conf") -> VSphereConfig:
    return read(text, VSphereConfig, source=name)


@pytest.mark.parametrize(("text", "name"), [(INI, "vsphere.conf"), (YAML, "vsphere.yaml")])
def test_both_dialects_of_the_official_file_mean_the_same(text: str, name: str) -> None:
    found = config(text, name)
    assert found.balances
    section = found.load_balancer
    assert (section.size, section.lb_service_id, section.snat_disabled) == ("MEDIUM", "4711", True)
    assert section.additional_tags == {"tag1": "value1", "owner": "me"}
    assert section.owner == "me"
    known = classes(section, found.load_balancer_class)
    assert {key: one.pool for key, one in known.items()} == {
        "default": Reference("", "pool1"),
        "public": Reference("42", ""),
        "private": Reference("", "pool1"),
    }
    assert known["private"].profiles == {
        "TCP": Reference("/infra/lb-app-profiles/tcp2", ""),
        "UDP": Reference("/infra/lb-app-profiles/udp", ""),
    }
    assert found.nsxt.url == "https://nsxt-server"
    assert found.nsxt.remote_auth
    assert found.nsxt.insecure_flag
    assert found.route.router_path == "/infra/tier-1s/12345"
    assert "planted-secret" not in repr(found)


def test_the_class_default_counts_for_the_others() -> None:
    found = config(
        f'{BASE}{WHOLE}[LoadBalancerClass "default"]\nip-pool-name = d\n'
        f'[LoadBalancerClass "x"]\ntcp-app-profile-path = /x\n{NSXT}'
    )
    known = classes(found.load_balancer, found.load_balancer_class)
    assert known["x"].pool == known["default"].pool == Reference("", "d")


def test_without_sections_of_nsxt_there_is_nothing_of_it() -> None:
    found = config(f"{BASE}[NSXT]\nuser = u\n[LoadBalancer]\ntcp-app-profile-name = t\n")
    assert not found.balances
    assert VSphereCloud(found).watched_files == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"[LoadBalancer]\nsize = SMALL\n{NSXT}", "give lb-service-id or tier1-gateway-path"),
        (f"[LoadBalancer]\nsize = SMALL\n{NSXT}", "LoadBalancer: give ip-pool-id or ip-pool-name"),
        (f"[LoadBalancer]\nsize = SMALL\n{NSXT}", "give udp-app-profile-name or"),
        (f"{WHOLE}size = HUGE\n{NSXT}", "size: must be one of SMALL, MEDIUM"),
        (f"{WHOLE}ip-pool-name = x\n{NSXT}", "LoadBalancer: give ip-pool-id or ip-pool-name, not"),
        (
            f'{WHOLE}[LoadBalancerClass "x"]\nip-pool-id = a\nip-pool-name = b\n{NSXT}',
            "LoadBalancerClass 'x': give ip-pool-id or ip-pool-name, not both",
        ),
        (f"{WHOLE.replace('/infra/tier-1s/t', 't')}{NSXT}", "tier1-gateway-path: must be a path"),
        (f"{WHOLE}tags = x\n{NSXT}", "tags: must be a mapping"),
        (f'{WHOLE}tags = "{{\\"port\\": \\"x\\"}}"\n{NSXT}', "tags: port: must not be given"),
        (f'{WHOLE}tags = "{{\\"a\\": \\"\\"}}"\n{NSXT}', "tags: 'a': a scope has"),
        (WHOLE, "NSXT host: is required"),
        (WHOLE, "NSXT: has no credentials"),
        (f"{WHOLE}[NSXT]\nhost = https://x/\nuser = u\npassword = p\n", "host: must be a host"),
        (f"{WHOLE}[NSXT]\nhost = x\nuser = u\n", "NSXT: give user and password"),
        (f"{WHOLE}[NSXT]\nhost = x\nclient-auth-key-file = k\n", "NSXT: give client-auth-cert-"),
        (f"{WHOLE}[NSXT]\nhost = x\nvmc-access-token = k\n", "NSXT: give vmc-access-token and"),
        (f"{WHOLE}[NSXT]\nhost = x\nsecret-name = k\n", "NSXT: give secret-name and"),
        (f"[Route]\nrouter-path = /infra/tier-0s/x\n{NSXT}", "router-path: must be a path"),
        ("[Route]\nrouter-path = /infra/tier-1s/x\n", "NSXT host: is required"),
    ],
)
def test_mistakes_name_the_key_and_the_remedy(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config(BASE + text)


def test_too_many_tags_are_refused() -> None:
    tags = ", ".join(f'"t{number}": "x"' for number in range(17))
    with pytest.raises(ConfigError, match="tags: must be at most 16"):
        config(
            "global: {server: a}\n"
            "nsxt: {host: n, user: u, password: p}\n"
            "loadBalancer: {ipPoolId: p, tier1GatewayPath: /infra/tier-1s/t,"
            f" tcpAppProfileName: t, udpAppProfileName: u, tags: {{{tags}}}}}\n",
            "vsphere.yaml",
        )


def test_an_ipv6_address_is_in_brackets() -> None:
    for host, url in (
        ("fd00::1", "https://[fd00::1]"),
        ("[fd00::1]:8443", "https://[fd00::1]:8443"),
        ("nsx:8443", "https://nsx:8443"),
    ):
        found = config(f"{BASE}{WHOLE}{NSXT.replace('host = n', f'host = {host}')}")
        assert found.nsxt.url == url


def test_files_that_it_depends_on_are_watched(tmp_path: Path) -> None:
    files = "ca-file = /ca\nclient-auth-cert-file = /c\nclient-auth-key-file = /k\n"
    found = VSphereCloud(config(f"{BASE}{WHOLE}[NSXT]\nhost = n\n{files}"))
    assert found.watched_files == ("/c", "/ca", "/k")
    secret = f"secret-name = s\nsecret-namespace = n\nsecrets-directory = {tmp_path}\n"
    found = VSphereCloud(config(f"{BASE}{WHOLE}[NSXT]\nhost = n\n{secret}"))
    assert found.watched_files == (f"{tmp_path}/password", f"{tmp_path}/username")
