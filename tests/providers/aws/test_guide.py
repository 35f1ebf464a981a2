"""The guide has exactly the annotations, the keys and the metrics that the code knows."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from proreus.cloudprovider.metrics import REGISTRY
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.aws import annotations
from proreus.providers.aws.annotations import PREFIX
from proreus.providers.aws.config import Client, Global, ServiceOverride, Tagging

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "aws.md").read_text()


def rows(header: str) -> list[str]:
    """The first cells of the table that begins so."""
    _, _, rest = GUIDE.partition(f"\n| {header} |")
    table = rest.partition("\n\n")[0].splitlines()[2:]
    return [found[1] for line in table if (found := re.match(r"\| `([^`]+)` \|", line))]


class Watched(Mapping[str, str]):
    """Annotations that know which of them were read."""

    def __init__(self, **values: str) -> None:
        self.values_given = values
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        assert name.startswith(PREFIX)
        self.read.add(name.removeprefix(PREFIX))
        return self.values_given[name.removeprefix(PREFIX)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_given)

    def __len__(self) -> int:
        return len(self.values_given)


@pytest.mark.parametrize("kind", ["", "nlb"])
def test_the_table_of_annotations_has_those_that_are_read(kind: str) -> None:
    given = Watched(type=kind)
    annotations.read(given)
    assert sorted(rows("annotation")) == sorted(given.read)


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
    keys = [one.encode_name for of in sections for one in msgspec.structs.fields(of)]
    assert sorted(rows(header)) == sorted(keys)


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
    exposed = {f"{name}_total" if type_ == "counter" else name for name, type_ in ours.items()}
    assert set(re.findall(r"`(cloudprovider_aws\w+)`", GUIDE)) == exposed
