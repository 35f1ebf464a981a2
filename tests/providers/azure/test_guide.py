"""The guide has exactly the annotations and the keys that the code knows."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from proreus.kube.objects import ObjectMeta, Service, ServicePort, ServiceSpec
from proreus.providers.azure.balancing.annotations import PREFIX, read_options
from proreus.providers.azure.config import AzureConfig, Unused

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "azure.md").read_text()


def rows(header: str) -> list[str]:
    """The first cells of the table that begins so."""
    _, _, rest = GUIDE.partition(f"\n| {header} |")
    table = rest.partition("\n\n")[0].splitlines()[2:]
    return [found[1] for line in table if (found := re.match(r"\| `([^`]+)` \|", line))]


class Watched(Mapping[str, str]):
    """An annotation or two, and which of them were looked for."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.read.add(name.removeprefix(PREFIX).replace("port_80_", "port_<n>_"))
        if name.endswith(("-internal", "-interval", "-num-of-probe", "_interval", "_num-of-probe")):
            return "true" if name.endswith("-internal") else "5"
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_the_table_of_annotations_has_those_that_are_read() -> None:
    watched = Watched()
    meta = msgspec.structs.replace(ObjectMeta(name="web"), annotations=watched)
    spec = ServiceSpec(type="LoadBalancer", ports=(ServicePort(80),))
    read_options(Service(metadata=meta, spec=spec))
    assert sorted(rows("annotation")) == sorted(watched.read)


def test_the_table_of_the_cloud_config_has_its_keys() -> None:
    unused = {one.encode_name for one in msgspec.structs.fields(Unused)}
    keys = [one.encode_name for one in msgspec.structs.fields(AzureConfig)]
    assert sorted(rows("key")) == sorted(one for one in keys if one not in unused)
