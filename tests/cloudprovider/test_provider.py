"""The root of a provider: what it has of its base class."""

import msgspec
import pytest

from proreus.cloudprovider import CloudProvider, ConfigError, ConfigSection


class Config(ConfigSection, frozen=True):
    endpoint: str = ""


class Tiny(CloudProvider):
    name = "tiny"


class Opened:
    def __init__(self, name: str, closed: list[str], problem: str = "") -> None:
        self.name = name
        self.closed = closed
        self.problem = problem

    async def close(self) -> None:
        self.closed.append(self.name)
        if self.problem:
            raise OSError(self.problem)


@pytest.mark.parametrize("config", [None, msgspec.Struct()])
def test_a_provider_without_its_cloud_config_reports_it(config: msgspec.Struct | None) -> None:
    with pytest.raises(ConfigError, match="--cloud-config: the provider tiny needs one"):
        Tiny(config).config_as(Config)
    assert Tiny(Config("here")).config_as(Config).endpoint == "here"


async def test_what_was_opened_is_closed_once_the_last_one_first() -> None:
    closed: list[str] = []
    provider = Tiny(None)
    for name in ("first", "last"):
        assert provider.closing(Opened(name, closed)).name == name
    await provider.close()
    await provider.close()
    await Tiny(None).close()
    assert closed == ["last", "first"]


async def test_one_that_cannot_be_closed_keeps_no_other_open() -> None:
    closed: list[str] = []
    provider = Tiny(None)
    provider.closing(Opened("first", closed))
    provider.closing(Opened("last", closed, "broken pipe"))
    with pytest.raises(OSError, match="broken pipe"):
        await provider.close()
    assert closed == ["last", "first"]
