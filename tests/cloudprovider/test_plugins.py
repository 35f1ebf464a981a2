"""Finding providers. Entry points are real ones: of distributions in a directory of the test."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

import proreus.cloudprovider
from proreus.cloudprovider import (
    CloudProvider,
    ConfigError,
    ConfigSection,
    InitCloudProvider,
    RegisterCloudProvider,
    available,
    load,
)

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """Installs a distribution with a module and entry points; all is gone after the test."""
    modules: list[str] = []

    def make(distribution: str, module: str, source: str, **points: str) -> None:
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{distribution}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        lines = "".join(f"{name} = {target}\n" for name, target in points.items())
        (info / "entry_points.txt").write_text(f"[proreus.cloudproviders]\n{lines}")
        importlib.invalidate_caches()

    sys.path.insert(0, str(tmp_path))
    yield make
    sys.path.remove(str(tmp_path))
    for module in modules:
        sys.modules.pop(module, None)
    importlib.invalidate_caches()


CLOUD = """
from proreus.cloudprovider import CloudProvider
class Cloud(CloudProvider):
    name = "cirrus"
    names = ("cirrus-alias",)
"""


def problems_of(call: Callable[[], object]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        call()
    return caught.value.problems


def test_a_provider_is_found_by_its_name_and_alias(install: Install) -> None:
    target = "cirrus_ccm:Cloud"
    install("cirrus", "cirrus_ccm", CLOUD, **{"cirrus": target, "cirrus-alias": target})
    assert {"cirrus", "cirrus-alias"} <= set(available())
    assert "cirrus_ccm" not in sys.modules
    assert load("cirrus").name == "cirrus"
    assert load("cirrus-alias") is load("cirrus")


def test_loading_one_provider_imports_no_other(install: Install) -> None:
    install("cirrus", "cirrus_ccm", CLOUD, cirrus="cirrus_ccm:Cloud")
    install("stratus", "stratus_ccm", "raise RuntimeError('imported')", stratus="stratus_ccm:Cloud")
    assert load("cirrus").name == "cirrus"
    assert "stratus_ccm" not in sys.modules


def test_an_unknown_name_lists_the_known_ones(install: Install) -> None:
    install("cirrus", "cirrus_ccm", CLOUD, cirrus="cirrus_ccm:Cloud")
    (problem,) = problems_of(lambda: load("nimbus"))
    assert problem.startswith("--cloud-provider: 'nimbus' is unknown; installed are ")
    assert "cirrus" in problem


@pytest.mark.parametrize(
    ("source", "target", "part"),
    [
        ("import not_there_at_all", "x_ccm:Cloud", 'is missing: pip install "xdist[x]"'),
        ("raise ImportError('broken')", "x_ccm:Cloud", "broken"),
        ("", "x_ccm:Cloud", "does not exist"),
        ("Cloud = 3", "x_ccm:Cloud", "is not a subclass of CloudProvider"),
        ("class Cloud: pass", "x_ccm:Cloud", "is not a subclass of CloudProvider"),
        (CLOUD, "x_ccm:Cloud", "has another `name` than its entry point, 'x'"),
    ],
)
def test_a_broken_provider_is_a_config_error(
    install: Install, source: str, target: str, part: str
) -> None:
    install("xdist", "x_ccm", source, x=target)
    (problem,) = problems_of(lambda: load("x"))
    assert part in problem


def test_a_module_that_only_the_constructor_needs_is_missed_with_the_extra(
    install: Install,
) -> None:
    source = """
from proreus.cloudprovider import CloudProvider
class Cloud(CloudProvider):
    name = "x"
    def __init__(self, config):
        import not_there_at_all
"""
    install("xdist", "x_ccm", source, x="x_ccm:Cloud")
    (problem,) = problems_of(lambda: InitCloudProvider("x", ""))
    assert problem == (
        "--cloud-provider: 'x' cannot be imported, 'not_there_at_all' is missing: "
        'pip install "xdist[x]"'
    )


def test_two_packages_that_claim_one_name_are_both_named(install: Install) -> None:
    install("cirrus", "cirrus_ccm", CLOUD, cirrus="cirrus_ccm:Cloud")
    install("other", "other_ccm", CLOUD, cirrus="other_ccm:Cloud")
    (problem,) = problems_of(lambda: load("cirrus"))
    assert "cirrus_ccm:Cloud and other_ccm:Cloud" in problem


class Global(ConfigSection, frozen=True):
    url: str
    token: str = ""


class Config(ConfigSection, frozen=True):
    ignore_unknown: ClassVar[bool] = True

    global_: Global


class Registered(CloudProvider):
    name = "registered"
    config_type: ClassVar[type[msgspec.Struct] | None] = Config


class WithoutConfig(CloudProvider):
    name = "without-config"


RegisterCloudProvider("registered", Registered)
RegisterCloudProvider("without-config", WithoutConfig)


def test_a_registered_provider_is_known_and_no_other_may_take_its_name() -> None:
    RegisterCloudProvider("registered", Registered)
    assert "registered" in available()
    assert load("registered") is Registered
    with pytest.raises(ValueError, match="registered already"):
        RegisterCloudProvider("registered", WithoutConfig)


def test_a_provider_gets_its_decoded_config(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "cloud.conf"
    file.write_text("[Global]\nurl = http://cloud\n[Novelty]\nx = 1\n")
    with caplog.at_level(logging.WARNING):
        provider = InitCloudProvider("registered", str(file))
    assert isinstance(provider, Registered)
    assert provider.config == Config(Global("http://cloud"))
    assert [record.message for record in caplog.records] == [
        "A setting in the cloud-config is ignored"
    ]


def test_a_provider_without_config_warns_of_a_file_and_needs_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "cloud.conf"
    file.write_text("anything")
    assert InitCloudProvider("without-config", "").config is None
    assert not caplog.records
    assert InitCloudProvider("without-config", str(file)).config is None
    assert "takes no cloud-config" in caplog.text


def test_errors_of_the_file_name_it(tmp_path: Path) -> None:
    wrong, binary = tmp_path / "wrong.conf", tmp_path / "binary.conf"
    wrong.write_text("[Global]\ntoken = hunter2\nuri = x\n")
    binary.write_bytes(b"\xff\xfe")
    problems = problems_of(lambda: InitCloudProvider("registered", str(wrong)))
    assert [problem.split(": ", 1)[0] for problem in problems] == [f"{wrong}:1", f"{wrong}:3"]
    assert "hunter2" not in "".join(problems)
    (problem,) = problems_of(lambda: InitCloudProvider("registered", str(binary)))
    assert problem == f"--cloud-config: {binary} is not UTF-8"
    (problem,) = problems_of(lambda: InitCloudProvider("registered", str(tmp_path / "none")))
    assert problem == f"--cloud-config: cannot read {tmp_path / 'none'}: No such file or directory"
    assert problems_of(lambda: InitCloudProvider("registered", "")) == (
        "without --cloud-config: global.url: is required",
    )


def test_the_front_door_offers_everything_it_names() -> None:
    names = proreus.cloudprovider.__all__
    assert len(set(names)) == len(names)
    assert set(names) <= set(vars(proreus.cloudprovider))
