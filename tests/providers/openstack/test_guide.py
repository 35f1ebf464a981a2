"""The guide has exactly the annotations, the keys and the metrics that the code knows."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from proreus.cloudprovider.metrics import REGISTRY
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.openstack import config
from proreus.providers.openstack.octavia.annotations import PREFIX, read_options, selector

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "openstack.md").read_text()
WRITTEN = ("keep-floatingip", "load-balancer-address", "load-balancer-id")
"""Read or written elsewhere."""


def rows(header: str) -> list[str]:
    """The first cells of the table that begins so."""
    _, _, rest = GUIDE.partition(f"\n| {header} |")
    table = rest.partition("\n\n")[0].splitlines()[2:]
    return [found[1] for line in table if (found := re.match(r"\| `([^`]+)` \|", line))]


class Watched(Mapping[str, str]):
    """No annotations, and which of them were looked for."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.read.add(name.removeprefix(PREFIX))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_the_table_of_annotations_has_those_that_are_read_or_written() -> None:
    given = Watched()
    read_options(given, config.LoadBalancer(), {})
    selector(given, "")
    assert sorted(rows("annotation")) == sorted(given.read | set(WRITTEN))


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
    keys = [one.encode_name for one in msgspec.structs.fields(section)]
    assert sorted(rows(header)) == sorted(keys)


def test_the_metrics_have_the_official_names_and_are_in_the_guide() -> None:
    ours = {one.name: one.type for one in REGISTRY.collect() if one.name.startswith("openstack_")}
    assert ours == {
        "openstack_api_request_duration_seconds": "histogram",
        "openstack_api_request_errors": "counter",
        "openstack_api_requests": "counter",
    }
    exposed = {f"{name}_total" if type_ == "counter" else name for name, type_ in ours.items()}
    assert set(re.findall(r"`(openstack_api_\w+)`", GUIDE)) == exposed
