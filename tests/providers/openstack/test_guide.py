"""The guide has exactly the annotations, the keys and the metrics that the code knows."""

import re

import msgspec
import pytest

from proreus.cloudprovider.metrics import REGISTRY
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.openstack import config
from proreus.providers.openstack.octavia.annotations import PREFIX, read_options, selector

from ..guides import Guide, Watched, exposed, keys  # noqa: TID252 - pytest imports tests by path

GUIDE = Guide("openstack")
WRITTEN = ("keep-floatingip", "load-balancer-address", "load-balancer-id")
"""Read or written elsewhere."""


def test_the_table_of_annotations_has_those_that_are_read_or_written() -> None:
    given = Watched(PREFIX)
    read_options(given, config.LoadBalancer(), {})
    selector(given, "")
    assert sorted(GUIDE.names("annotation")) == sorted(given.read | set(WRITTEN))


@pytest.mark.parametrize(
    ("header", "section"),
    [
        ("key in `[Global]`", config.Global),
        ("key in `[Networking]`", config.Networking),
        ("key in `[Route]`", config.Route),
        ("key in `[LoadBalancer]`", config.LoadBalancer),
        ('key in `[LoadBalancerClass "x"]`', config.LoadBalancerClass),
        ("key in `[Client]`, of ours", config.Client),
        ("key in `[Tenants]`, of ours", Tenants),
    ],
)
def test_the_tables_of_the_cloud_config_have_its_keys(
    header: str, section: type[msgspec.Struct]
) -> None:
    assert sorted(GUIDE.names(header)) == sorted(keys(section))


def test_the_metrics_have_the_official_names_and_are_in_the_guide() -> None:
    ours = {one.name: one.type for one in REGISTRY.collect() if one.name.startswith("openstack_")}
    assert ours == {
        "openstack_api_request_duration_seconds": "histogram",
        "openstack_api_request_errors": "counter",
        "openstack_api_requests": "counter",
    }
    assert set(re.findall(r"`(openstack_api_\w+)`", GUIDE.text)) == exposed(ours)
