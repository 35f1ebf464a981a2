"""The flags and files that name several clouds."""

from pathlib import Path

import pytest

from proreus.app import command_line
from proreus.app.clouds.config import (
    configured,
    from_text,
    named,
    needs_of,
    origin_of_member,
    problems,
    rights_of,
    rules_of,
)
from proreus.app.clouds.plan import Rules
from proreus.app.clouds.several import members_of
from proreus.app.options import Options
from proreus.app.reload import FileOrigin
from proreus.cloudprovider import ConfigError
from proreus.providers.simulated.config import SimulatedConfig

TWO = "east=simulated,west=simulated"


def options(cloud_provider: str = TWO, **more: object) -> Options:
    return Options(cloud_provider=cloud_provider, **more)  # type: ignore[arg-type]


def gcfg(region: str) -> str:
    return f'[Global]\nendpoint = "http://127.0.0.1:1"\nregion = {region}\ntoken = t\n'


def regions(text: str) -> dict[str, str]:
    found = {}
    for name, one in members_of(from_text(options(), text, source="all.yaml")).items():
        assert isinstance(one.config, SimulatedConfig)
        found[name] = one.config.global_.region
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aws", [("", "aws")]),
        ("aws,local", [("aws", "aws"), ("local", "local")]),
        (TWO, [("east", "simulated"), ("west", "simulated")]),
        ("east=openstack, local", [("east", "openstack"), ("local", "local")]),
        ("only=aws", [("only", "aws")]),
    ],
)
def test_clouds_have_the_names_given_or_those_of_their_providers(
    text: str, expected: list[tuple[str, str]]
) -> None:
    assert [(one.name, one.provider) for one in named(text)] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (options(), ""),
        (options("aws"), ""),
        (options("aws", load_balancer_cloud="aws"), "--load-balancer-cloud: needs several"),
        (options("aws,aws"), "2 clouds have the name 'aws': give each its own"),
        (options("East=aws,local"), "'East' is not a name of a cloud"),
        (options("aws,,local"), "'' is not a name of a cloud"),
        (options("undecided=aws,local"), "'undecided' cannot be the name"),
        (options(load_balancer_cloud="north"), "'north' is none of the clouds: east, west"),
        (options(load_balancer_classes=("north=a",)), "'north' is none of the clouds"),
        (options(cloud_config="east=a,north=b"), "'north=b' is not NAME=FILE"),
        (options(cloud_config="east=a,b"), "'b' is not NAME=FILE"),
        (options(cloud_config="east=a,west="), "'west=' is not NAME=FILE"),
        (options(cloud_config="east=a,east=b"), "two files"),
        (
            options(allocate_node_cidrs=True, cidr_allocator_type="IPAMFromCluster"),
            "IPAMFromCluster is for one cloud",
        ),
    ],
)
def test_what_is_wrong_names_the_flag_and_the_remedy(given: Options, expected: str) -> None:
    found = problems(given)
    assert len(found) == bool(expected), found
    assert expected in "".join(found)


def test_each_cloud_has_a_file_and_all_their_problems_come_at_once(tmp_path: Path) -> None:
    east, west = tmp_path / "east.conf", tmp_path / "west.conf"
    east.write_text(gcfg("one"))
    west.write_text(gcfg("two"))
    given = options(cloud_config=f"east={east},west={west}")
    assert members_of(configured(given)).keys() == {"east", "west"}
    east.write_text("[Global]\nendpoint = x\n")
    with pytest.raises(ConfigError) as raised:
        configured(options(cloud_config=f"east={east}"))
    text = "\n".join(raised.value.problems)
    assert "the cloud east: " in text
    assert "the cloud west: " in text


def test_one_yaml_has_the_configs_of_all_as_yaml_or_in_the_providers_dialect() -> None:
    indented = gcfg("two").replace("\n", "\n  ")
    text = f"""\
east:
  global: {{endpoint: "http://127.0.0.1:1", region: one, token: t}}
west: |
  {indented}
"""
    assert regions(text) == {"east": "one", "west": "two"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a", "must be YAML with a section for each of east, west"),
        ("east: [", "is not YAML"),
        ("north: {}", "'north' is of none of the clouds"),
        ("east: 1", "the section east must hold"),
    ],
)
def test_one_file_that_is_wrong_says_how(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_text(options(), text, source="all.yaml")
    assert expected in "\n".join(raised.value.problems)
    assert "all.yaml" in "\n".join(raised.value.problems)


def test_a_cloud_follows_its_own_file_or_its_section(tmp_path: Path) -> None:
    whole = tmp_path / "all.yaml"
    whole.write_text("west: text of west\n")
    given = options(cloud_config=str(whole))
    section = origin_of_member(given, "west", FileOrigin(str(whole)))
    assert section is not None
    assert section.read() == "text of west"
    assert origin_of_member(given, "undecided", FileOrigin(str(whole))) is None
    apart = options(cloud_config="west=w.conf")
    file = origin_of_member(apart, "west", FileOrigin("west=w.conf"))
    assert file is not None
    assert file.name == "w.conf"


def test_classes_without_a_cloud_are_the_defaults() -> None:
    given = options(
        load_balancer_classes=("east=a", "b"),
        load_balancer_cloud="west",
        classless_load_balancers=False,
    )
    expected = Rules(["east", "west"], "west", {"a": "east", "b": "west"}, classless=False)
    assert rules_of(given) == expected


def test_caches_and_flags_are_those_of_all_providers() -> None:
    assert needs_of("east=simulated,local") == needs_of("local") != frozenset()
    assert needs_of("gce") < rights_of(options("gce"))
    given = command_line.parse(
        Options, ["--cloud-provider=local,east=openstack", "--user-agent=a"], "run", ""
    ).options
    assert given.provider_flags == {"user-agent": ("a",)}
