"""The guide has exactly the keys, the annotations and the metrics that the code knows."""

import re

import msgspec
import pytest

from proreus.cloudprovider.metrics import REGISTRY
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.gce import config
from proreus.providers.gce.balancing import annotations

from ..guides import Guide, exposed, keys  # noqa: TID252 - pytest imports tests by path

GUIDE = Guide("gce")


def test_the_table_of_annotations_has_those_that_are_read() -> None:
    known = {
        value
        for name, value in vars(annotations).items()
        if name.isupper() and name[0] != "_" and isinstance(value, str) and "/" in value
    }
    finalizers = {one for one in known if one.startswith("gke.networking.io/")}
    others = {*finalizers, annotations.EXTERNAL_CLASS, annotations.INTERNAL_CLASS}
    assert sorted(GUIDE.names("annotation")) == sorted(known - others)


@pytest.mark.parametrize(
    ("header", "section"),
    [
        ("key in `[Global]`", config.Global),
        ("key in `[LoadBalancer]`, of ours", config.LoadBalancer),
        ("key in `[Client]`, of ours", config.Client),
        ("key in `[Tenants]`, of ours", Tenants),
    ],
)
def test_the_tables_of_the_cloud_config_have_its_keys(
    header: str, section: type[msgspec.Struct]
) -> None:
    assert sorted(GUIDE.names(header)) == sorted(keys(section))


def test_the_metrics_have_the_official_names_and_are_in_the_guide() -> None:
    begin = "cloudprovider_gce_"
    ours = {one.name: one.type for one in REGISTRY.collect() if one.name.startswith(begin)}
    assert ours == {
        "cloudprovider_gce_api_request_duration_seconds": "histogram",
        "cloudprovider_gce_api_request_errors": "counter",
    }
    assert set(re.findall(r"`(cloudprovider_gce_\w+)`", GUIDE.text)) == exposed(ours)
