"""The cloud-config: the official file, its keys, and what is wrong with it."""

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.gce import GCECloud
from proreus.providers.gce.config import GCEConfig
from proreus.providers.gce.place import Subnetwork, automatic

OFFICIAL = """
[global]
project-id = my-project
network-project-id = host-project
network-name = prod
subnetwork-name = nodes
stack-type = IPV4_IPV6
secondary-range-name = pods
node-tags = gke-node
node-tags = extra
node-instance-prefix = gke-
regional = true
multizone = true
api-endpoint = https://www.googleapis.com/compute/v1/
container-api-endpoint = https://container.googleapis.com/
local-zone = europe-west1-b
token-url = nil
token-body = "{\\"a\\": 1}"
alpha-features = ILBSubsets
alpha-features = SkipIGsManagement
"""


def config(text: str) -> GCEConfig:
    return read(text, GCEConfig, source="gce.conf")


def test_every_key_of_the_official_file_is_read() -> None:
    found = config(OFFICIAL).global_
    assert found.project_id == "my-project"
    assert found.network_project_id == "host-project"
    assert (found.network_name, found.subnetwork_name) == ("prod", "nodes")
    assert found.stack_type == "IPV4_IPV6"
    assert found.secondary_range_name == "pods"
    assert found.node_tags == ("gke-node", "extra")
    assert found.node_instance_prefix == "gke-"
    assert found.regional
    assert found.multizone
    assert found.local_zone == "europe-west1-b"
    assert found.token_url == "nil"
    assert found.token_body == '{"a": 1}'
    assert found.alpha_features == ("ILBSubsets", "SkipIGsManagement")


def test_a_name_that_is_unknown_is_passed_over_with_a_warning() -> None:
    warnings: list[str] = []
    read("[global]\nfuture = 1\n", GCEConfig, source="gce.conf", warn=warnings.append)
    assert len(warnings) == 1
    assert "future" in warnings[0]


def test_all_mistakes_are_told_at_once() -> None:
    text = """
[global]
stack-type = IPV5
local-zone = here
api-endpoint = compute.example.org
node-tags = UPPER
[LoadBalancer]
cluster-id = with/slash
[Client]
timeout = 0s
"""
    with pytest.raises(ConfigError) as caught:
        config(text)
    told = str(caught.value)
    for part in ("stack-type", "local-zone", "api-endpoint", "'UPPER'", "cluster-id", "timeout"):
        assert part in told


def test_a_config_of_another_provider_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a cloud-config of the provider gce"):
        GCECloud(config("").global_)


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(config("[global]\ntoken-body = a-secret\n"))


def test_the_subnetwork_that_google_has_made() -> None:
    network = "projects/p/global/networks/n"
    url = f"https://www.googleapis.com/compute/v1/{network}"
    made = [
        Subnetwork("auto", url, "10.132.0.0/20"),
        Subnetwork("own", url, "10.0.0.0/16"),
        Subnetwork("other", url.replace("/n", "/m"), "10.132.0.0/20"),
        Subnetwork("six", url, "fd00::/64"),
    ]
    assert automatic(made, network) == ["auto"]
