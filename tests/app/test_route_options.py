"""The flags of the route controller, and when they keep it from running."""

import pytest

from proreus.app import flags
from proreus.app.options import Options
from proreus.controllers.settings import Settings
from proreus.controllers.table import select


def parsed(*argv: str) -> Options:
    options, _ = flags.parse(Options, argv, "test", "")
    return options


def why_not(settings: Settings) -> str:
    ((controller,), _) = select(("route",))
    return controller.why_not(settings)


@pytest.mark.parametrize(
    ("text", "cidrs"),
    [
        ("10.244.0.0/16", ("10.244.0.0/16",)),
        ("10.244.0.0/16,fd00:10::/48", ("10.244.0.0/16", "fd00:10::/48")),
        ("fd00:10::/48,10.244.0.0/16", ("fd00:10::/48", "10.244.0.0/16")),
    ],
)
def test_one_cluster_cidr_or_two_of_different_families_are_taken(
    text: str, cidrs: tuple[str, ...]
) -> None:
    assert parsed(f"--cluster-cidr={text}").cluster_cidr == cidrs


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10.244.0.0/16,10.245.0.0/16", "two of different families"),
        ("10.244.0.0/16,fd00::/48,fd01::/48", "two of different families"),
        ("10.244.0.0", "'10.244.0.0': give a CIDR such as 10.244.0.0/16"),
        ("10.244.0.0/255.255.0.0", "give a CIDR"),
        ("fd00::/48,pods", "--cluster-cidr: 'pods': give a CIDR"),
    ],
)
def test_a_wrong_cluster_cidr_is_refused_by_its_flag(text: str, problem: str) -> None:
    with pytest.raises(flags.FlagError) as refused:
        parsed(f"--cluster-cidr={text}")
    (said,) = refused.value.problems
    assert said.startswith("--cluster-cidr: ")
    assert problem in said


def test_routes_are_compared_every_five_minutes_or_as_the_flag_sets_it() -> None:
    assert parsed().route_reconciliation_period == 300
    assert parsed("--route-reconciliation-period=10s").route_reconciliation_period == 10
    with pytest.raises(flags.FlagError, match="--route-reconciliation-period"):
        parsed("--route-reconciliation-period=0")


def test_the_controller_runs_only_where_it_is_enabled_and_has_the_pods_networks() -> None:
    assert why_not(Settings(cluster_cidr=("10.244.0.0/16",))) == ""
    assert why_not(Settings()) == "--cluster-cidr is not given"
    options = parsed("--configure-cloud-routes=false", "--cluster-cidr=10.244.0.0/16")
    settings = Settings(
        configure_cloud_routes=options.configure_cloud_routes, cluster_cidr=options.cluster_cidr
    )
    assert why_not(settings) == "--configure-cloud-routes is false"
