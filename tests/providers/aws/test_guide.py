"""The guide has exactly the annotations, the keys and the metrics that the code knows."""

import re

import msgspec
import pytest

from proreus.cloudprovider.metrics import REGISTRY
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.aws import annotations
from proreus.providers.aws.annotations import PREFIX
from proreus.providers.aws.config import Client, Global, ServiceOverride, Tagging

from ..guides import Guide, Watched, exposed, keys  # noqa: TID252 - pytest imports tests by path

GUIDE = Guide("aws")


@pytest.mark.parametrize("kind", ["", "nlb"])
def test_the_table_of_annotations_has_those_that_are_read(kind: str) -> None:
    given = Watched(PREFIX, type=kind)
    annotations.read(given)
    assert not given.outside
    assert sorted(GUIDE.names("annotation")) == sorted(given.read)


@pytest.mark.parametrize(
    ("header", "sections"),
    [
        ("key in `[Global]`", [Global]),
        ('key in `[ServiceOverride "n"]`', [ServiceOverride]),
        ("key of ours", [Tagging, Client, Tenants]),
    ],
)
def test_the_tables_of_the_cloud_config_have_its_keys(
    header: str, sections: list[type[msgspec.Struct]]
) -> None:
    assert sorted(GUIDE.names(header)) == sorted(keys(*sections))


def test_the_metrics_have_the_official_names_and_are_in_the_guide() -> None:
    families = {one.name: one.type for one in REGISTRY.collect()}
    ours = {name: type_ for name, type_ in families.items() if name.startswith("cloudprovider_aws")}
    assert ours == {
        "cloudprovider_aws_api_request_duration_seconds": "histogram",
        "cloudprovider_aws_api_request_errors": "counter",
        "cloudprovider_aws_api_response_status": "counter",
        "cloudprovider_aws_api_throttled_requests": "counter",
        "cloudprovider_aws_tagging_controller_work_item_errors": "counter",
    }
    assert set(re.findall(r"`(cloudprovider_aws\w+)`", GUIDE.text)) == exposed(ours)
