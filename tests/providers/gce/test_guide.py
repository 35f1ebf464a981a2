"""The guide has exactly the keys, the annotations and the metrics that the code knows."""

import re
from pathlib import Path

import msgspec
import pytest

from proreus.cloudprovider.metrics import REGISTRY
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.gce import config
from proreus.providers.gce.balancing import annotations

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "gce.md").read_text()


def rows(header: str) -> list[str]:
    """The first cells of the table that begins so."""
    _, _, rest = GUIDE.partition(f"\n| {header} |")
    table = rest.partition("\n\n")[0].splitlines()[2:]
    return [found[1] for line in table if (found := re.match(r"\| `([^`]+)` \|", line))]


def test_the_table_of_annotations_has_those_that_are_read() -> None:
    known = {
        value
        for name, value in vars(annotations).items()
        if name.isupper() and isinstance(value, str) and "/" in value
    }
    finalizers = {one for one in known if one.startswith("gke.networking.io/")}
    assert sorted(rows("annotation")) == sorted(known - finalizers)


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
    keys = [one.encode_name for one in msgspec.structs.fields(section)]
    assert sorted(rows(header)) == sorted(keys)


def test_the_metrics_have_the_official_names_and_are_in_the_guide() -> None:
    begin = "cloudprovider_gce_"
    ours = {one.name: one.type for one in REGISTRY.collect() if one.name.startswith(begin)}
    assert ours == {
        "cloudprovider_gce_api_request_duration_seconds": "histogram",
        "cloudprovider_gce_api_request_errors": "counter",
    }
    exposed = {f"{name}_total" if type_ == "counter" else name for name, type_ in ours.items()}
    assert set(re.findall(r"`(cloudprovider_gce_\w+)`", GUIDE)) == exposed
