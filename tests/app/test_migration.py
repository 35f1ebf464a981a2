"""The LeaderMigrationConfiguration: what it means, and what is said of one that is wrong."""

from pathlib import Path

import pytest

from proreus.app.migration import DEFAULT, Migration, canonical, load
from proreus.cloudprovider import ConfigError

HEAD = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n"
ROUTE, SERVICE = "node-route-controller", "service-lb-controller"
LIFECYCLE = "cloud-node-lifecycle-controller"


def read(tmp_path: Path, text: str) -> Migration:
    path = tmp_path / "migration.yaml"
    path.write_text(text)
    return load(str(path))


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as failed:
        read(tmp_path, text)
    return [one.removeprefix(f"--leader-migration-config: {tmp_path}/migration.yaml:")
            for one in failed.value.problems]  # fmt: skip


def test_without_a_file_gos_three_controllers_migrate() -> None:
    assert load("") is DEFAULT
    assert DEFAULT.lease == "cloud-provider-extraction-migration"
    assert {name for name in DEFAULT.components if DEFAULT.is_ours(name)} == {
        ROUTE, SERVICE, LIFECYCLE,
    }  # fmt: skip


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_every_version_and_form_is_read(tmp_path: Path, version: str, form: str) -> None:
    api = f"controllermanager.config.k8s.io/{version}"
    text = {
        "yaml": f"apiVersion: {api}\nkind: LeaderMigrationConfiguration\nleaderName: m\n"
        "resourceLock: leases\ncontrollerLeaders:\n- name: route\n  component: '*'\n",
        "json": f'{{"apiVersion": "{api}", "kind": "LeaderMigrationConfiguration",'
        '"leaderName": "m", "controllerLeaders": [{"name": "route", "component": "*"}]}',
    }[form]
    assert read(tmp_path, text) == Migration("m", {ROUTE: "*"})


@pytest.mark.parametrize(
    ("component", "ours", "elsewhere"),
    [
        ("*", True, ""),
        ("cloud-controller-manager", True, ""),
        ("kube-controller-manager", False, "kube-controller-manager"),
    ],
)
def test_the_component_decides_where_a_controller_runs(
    tmp_path: Path, component: str, *, ours: bool, elsewhere: str
) -> None:
    text = f'{HEAD}controllerLeaders: [{{name: service, component: "{component}"}}]'
    migration = read(tmp_path, text)
    assert migration.is_ours(SERVICE) is ours
    assert migration.elsewhere(SERVICE) == elsewhere
    assert not migration.is_ours(ROUTE)
    assert migration.elsewhere(ROUTE) == ""


@pytest.mark.parametrize(
    ("name", "controller"),
    [
        ("route", ROUTE),
        ("route-controller", ROUTE),
        ("node-route-controller", ROUTE),
        ("service", SERVICE),
        ("service-controller", SERVICE),
        ("service-lb-controller", SERVICE),
        ("cloud-node-lifecycle", LIFECYCLE),
        ("cloud-node-lifecycle-controller", LIFECYCLE),
        ("nodeipam", "node-ipam-controller"),
        ("horizontal-pod-autoscaler-controller", ""),
    ],
)
def test_every_name_that_a_controller_had_is_its_name(name: str, controller: str) -> None:
    assert canonical(name) == controller


def test_all_problems_are_reported_together_with_line_and_remedy(tmp_path: Path) -> None:
    text = (
        "apiVersion: v1\nkind: Lease\nleaderName: ''\nresourceLock: endpoints\nleader: x\n"
        "controllerLeaders:\n- name: route\n- {name: service, component: '*', when: now}\n"
        "- {name: service-controller, component: kube-controller-manager}\n- service\n"
        "- {name: [], component: '*'}\n"
    )
    known = "apiVersion, kind, leaderName, resourceLock, controllerLeaders"
    group = "controllermanager.config.k8s.io"
    assert problems(tmp_path, text) == [
        f"5: leader is unknown; there are {known}",
        f"1: apiVersion must be {group}/v1 or {group}/v1beta1 or {group}/v1alpha1",
        "2: kind must be LeaderMigrationConfiguration",
        "4: resourceLock must be leases",
        "3: leaderName must be a text and not empty: name the lease",
        '7: controllerLeaders[0].component must be a text and not empty: name a component, or "*"',
        "8: controllerLeaders[1].when is unknown; there are name, component",
        "9: controllerLeaders[2] service-lb-controller already belongs to *; keep one of the two",
        "10: controllerLeaders[3] must be a mapping with name and component",
        "11: controllerLeaders[4].name must be a text and not empty: name the controller",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{HEAD}controllerLeaders: service", "3: controllerLeaders must be a list"),
        ("{", "1: is not JSON: Expecting property name enclosed in double quotes"),
        (f"{HEAD}kind: x", "3: kind is given twice"),
    ],
)
def test_what_is_not_of_the_form_is_reported(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text) == [problem]


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*/none: No such file"):
        load(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load(str(tmp_path / "binary"))
