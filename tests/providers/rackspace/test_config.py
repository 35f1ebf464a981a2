"""The cloud-config of the provider `rackspace`: the in-tree file, and what is wrong with it."""

from datetime import timedelta

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.rackspace import RackspaceCloud
from proreus.providers.rackspace.config import US_IDENTITY, RackspaceConfig

IN_TREE = """
[Global]
auth-url = https://identity.api.rackspacecloud.com/v2.0/
username = user
user-id = 17
password = planted-password
api-key = planted-key
tenant-id = 123456
tenant-name = 123456
domain-id = d
domain-name = domain
region = DFW
[LoadBalancer]
subnet-id = 2e8c1f0a-0000-4000-8000-000000000000
create-monitor = yes
monitor-delay = 1m
monitor-timeout = 30s
monitor-max-retries = 3
"""


def test_the_in_tree_file_with_every_key_is_read_unmodified() -> None:
    found = read(IN_TREE, RackspaceConfig, source="cloud-config")
    of = found.global_
    assert (of.username, of.api_key, of.region) == ("user", "planted-key", "DFW")
    assert (of.tenant_id, of.tenant_name) == ("123456", "123456")
    checks = found.load_balancer
    assert checks.create_monitor
    assert (checks.monitor_delay, checks.monitor_timeout) == (
        timedelta(minutes=1),
        timedelta(seconds=30),
    )
    assert checks.monitor_max_retries == 3
    assert found.cloud_load_balancers.enabled
    assert found.cloud_load_balancers.max_nodes == 25


def test_the_shortest_in_tree_file_means_the_identity_of_the_us() -> None:
    text = "[Global]\nusername = user\napi-key = key\nregion = DFW\n"
    found = read(text, RackspaceConfig, source="cloud-config")
    assert found.global_.auth_url == US_IDENTITY
    assert not found.load_balancer.create_monitor


def test_everything_that_is_wrong_is_told_at_once_and_names_its_key() -> None:
    text = """
[Global]
auth-url = identity.example.org
user-id = 17
region = DFW
[LoadBalancer]
monitor-delay = 2h
monitor-timeout = 1500ms
monitor-max-retries = 11
[CloudLoadBalancers]
max-nodes = 51
[Client]
timeout = 0s
"""
    with pytest.raises(ConfigError) as refused:
        read(text, RackspaceConfig, source="cloud-config")
    told = "\n".join(refused.value.problems)
    for part in (
        "auth-url: give a URL", "in the place of user-id", "api-key: give", "monitor-delay",
        "monitor-timeout", "monitor-max-retries", "max-nodes", "timeout: must be more",
    ):  # fmt: skip
        assert part in told


def test_a_key_that_gcfg_refused_in_tree_is_refused() -> None:
    with pytest.raises(ConfigError, match="regoin"):
        read(IN_TREE.replace("region", "regoin"), RackspaceConfig, source="cloud-config")


def test_without_a_config_the_provider_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"\[Global\]"):
        RackspaceCloud(None)


def test_no_secret_is_shown() -> None:
    assert "planted" not in repr(read(IN_TREE, RackspaceConfig, source="cloud-config"))
