"""The cloud-config: the official file unmodified, everything wrong at once."""

from datetime import timedelta

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.openstack import OpenStackCloud
from proreus.providers.openstack.config import OpenStackConfig

GLOBAL = """[Global]
auth-url = https://keystone.example.org:5000/v3
username = ccm
password = planted-secret
domain-name = Default
"""
NAMED = "application-credential-name = n\napplication-credential-secret = s\n"
OFFICIAL = """
[Global]
auth-url = https://keystone.example.org:5000/v3
os-endpoint-type = internalURL
ca-file = /etc/ca.pem
cert-file = /etc/cert.pem
key-file = /etc/key.pem
username = ccm
user-id = 1
password = "planted; secret"
region = eu-1
tenant-id = t
tenant-name = demo
tenant-domain-id = td
tenant-domain-name = tdn
user-domain-id = ud
user-domain-name = udn
domain-id = d
domain-name = dn
trust-id = trust
trustee-id = trustee
trustee-password = planted-secret
application-credential-id = aci
application-credential-name = acn
application-credential-secret = planted-secret
use-clouds = false
clouds-file = /etc/clouds.yaml
cloud = one
tls-insecure = true
token = planted-secret
secret-name = old
secret-namespace = kube-system
kubeconfig = /etc/kubeconfig
[Networking]
ipv6-support-disabled = true
public-network-name = public
public-network-name = ext
internal-network-name = cluster
address-sort-order = "10.0.0.0/8, nonsense, 2001:db8::/32"
[LoadBalancer]
enabled = true
lb-version = v2
use-octavia = true
floating-network-id = f
floating-subnet-id = fs
floating-subnet = "dmz*"
floating-subnet-tags = a,b
lb-method = LEAST_CONNECTIONS
lb-provider = ovn
subnet-id = s
member-subnet-id = ms
network-id = n
manage-security-groups = true
create-monitor = yes
monitor-delay = 1m
monitor-timeout = 30s
monitor-max-retries = 2
monitor-max-retries-down = 4
internal-lb = true
node-selector = "a=b"
cascade-delete = false
flavor-id = fl
availability-zone = az
enable-ingress-hostname = true
ingress-hostname-suffix = example.org
default-tls-container-ref = ref
container-store = barbican
max-shared-lb = 3
provider-requires-serial-api-calls = true
[LoadBalancerClass "dmz"]
floating-network-id = f
floating-subnet-id = fs
floating-subnet = x
floating-subnet-tags = y
network-id = n
subnet-id = s
member-subnet-id = m
[Route]
router-id = r
[Metadata]
search-order = configDrive,metadataService
request-timeout = 5s
[BlockStorage]
bs-version = v3
trust-device-path = true
ignore-volume-az
"""


def config(text: str, warned: list[str] | None = None) -> OpenStackConfig:
    warnings: list[str] = [] if warned is None else warned
    return read(text, OpenStackConfig, source="cloud.conf", warn=warnings.append)


def test_the_official_file_is_read_unmodified_and_without_a_warning() -> None:
    warned: list[str] = []
    found = config(OFFICIAL, warned)
    assert warned == []
    assert found.global_.interface == "internal"
    assert found.global_.password == "planted; secret"
    assert found.networking.public_network_name == ("public", "ext")
    assert [str(one) for one in found.networking.sort_order] == ["10.0.0.0/8", "2001:db8::/32"]
    assert found.load_balancer.monitor_delay == timedelta(minutes=1)
    assert found.load_balancer_class["dmz"].member_subnet_id == "m"
    assert found.route.router_id == "r"


def test_what_is_left_out_has_the_official_defaults() -> None:
    found = config(GLOBAL)
    assert found.networking.public_network_name == ()
    assert found.networking.internal_network_name == ()
    assert (found.load_balancer.lb_provider, found.load_balancer.max_shared_lb) == ("amphora", 2)
    assert (found.load_balancer.cascade_delete, found.load_balancer.create_monitor) == (True, False)


def test_an_unknown_key_is_warned_about_and_not_refused() -> None:
    warned: list[str] = []
    config(GLOBAL + "auth-uri = x\n[Nonsense]\na = b\n", warned)
    assert len(warned) == 2
    assert all("is unknown and ignored" in text for text in warned)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["auth-url: is required", "username: give username"]),
        ("auth-url = https://k\nuser-id = u\n", ["password: is required"]),
        (
            "auth-url = k\nusername = u\npassword = p\ncert-file = c\nos-endpoint-type = wan\n",
            ["auth-url: give a URL", "domain-name or", "cert-file, key-file", "os-endpoint-type"],
        ),
        ("auth-url = https://k\napplication-credential-id = i\n", ["credential-secret: is req"]),
        (
            "auth-url = https://k\nusername = u\n" + NAMED,
            ["application-credential-name: needs user-id"],
        ),
        ("use-clouds\n", ["cloud: give the name"]),
    ],
)
def test_everything_wrong_is_reported_at_once(text: str, told: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        config(f"[Global]\n{text}")
    assert len(refused.value.problems) == len(told)
    assert all(any(part in one for one in refused.value.problems) for part in told)


def test_each_sort_of_credentials_is_enough() -> None:
    url = "[Global]\nauth-url = https://k\n"
    assert config(f"{url}token = t\n").global_.token == "t"
    config(f"{url}user-id = u\npassword = p\n")
    config(f"{url}trust-id = t\ntrustee-id = u\ntrustee-password = p\n")
    config(f"{url}application-credential-id = i\napplication-credential-secret = s\n")


def test_secrets_are_not_shown() -> None:
    assert "planted" not in repr(config(OFFICIAL))


def test_the_provider_needs_a_cloud_config() -> None:
    with pytest.raises(ConfigError):
        OpenStackCloud(None)


def test_files_that_the_cloud_config_names_are_watched() -> None:
    files = OpenStackCloud(config(OFFICIAL)).watched_files
    assert files == ("/etc/clouds.yaml", "/etc/ca.pem", "/etc/cert.pem", "/etc/key.pem")
