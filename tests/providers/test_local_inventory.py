"""The inventory of the provider `local`: what is read, what is refused, what stays in force."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from proreus.cloudprovider import ConfigError
from proreus.cloudprovider.metrics import REGISTRY
from proreus.providers.local.inventory import (
    Defaults,
    Inventory,
    InventoryReader,
    MachineState,
    decode,
)

TWO = """
    defaults: {zone: rack-1, type: metal}
    machines:
      - name: n1
        id: SN-1
        systemUUID: 4C4C4544-0042-3510-8056-B4C04F4E5131
        addresses: [192.0.2.11, 2001:db8::11]
        externalAddresses: [198.51.100.11]
        labels: {rack: r1, example.com/owner: me}
      - {name: n2, zone: rack-2, region: away, state: stopped}
      - {name: n2, id: SN-0, state: gone}
    """
ONE = "machines: [{name: n1}]"


def made(*texts: str) -> Inventory:
    files = {f"{number}.yaml": dedent(text) for number, text in enumerate(texts, 1)}
    return decode(files, Defaults(region="home"))


def problems(*texts: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        made(*texts)
    return caught.value.problems


def test_machines_are_found_by_id_name_and_uuid() -> None:
    inventory = made(TWO, "machines: [{name: n3, type: virtual}]")
    first, second, third = (inventory.by_name[name] for name in ("n1", "n2", "n3"))
    assert inventory.by_id == {
        "SN-1": first,
        "n2": second,
        "n3": third,
        "SN-0": inventory.by_id["SN-0"],
    }
    assert inventory.by_id["SN-0"].state is MachineState.GONE
    assert inventory.by_uuid == {"4c4c4544-0042-3510-8056-b4c04f4e5131": first}
    assert first.addresses == ("192.0.2.11", "2001:db8::11")
    assert first.labels == {"rack": "r1", "example.com/owner": "me"}
    assert [(one.region, one.zone, one.type) for one in (first, second, third)] == [
        ("home", "rack-1", "metal"),
        ("away", "rack-2", "metal"),
        ("home", "", "virtual"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("machines: [{name: a}, {name: a}]", ("machine a", "in 1.yaml", "the name a")),
        ("machines: [{name: a}, {name: a, id: x}]", ("the name a",)),
        ("machines: [{name: a, id: x}, {name: b, id: x}]", ("machine b", "the id x")),
        ("machines: [{name: a, state: gone}, {name: a}]", ("the id a",)),
        ("machines: [{name: a, addresses: [192.0.2.1]}, {name: b, externalAddresses: [192.0.2.1]}]",
         ("machine b", "the address 192.0.2.1")),
        ("machines: [{name: a, systemUUID: AB}, {name: b, systemUUID: ab}]", ("systemUUID ab",)),
        ("machines: [{name: a, adresses: [192.0.2.1]}]", ("adresses", "did you mean addresses")),
        ("machines: [{id: a}]", ("name", "required")),
        ("machines: [{name: ''}]", ("name, id", "white space")),
        ("machines: [{name: a/b}]", ("a/b", "without white space and /")),
        ("machines: [{name: a, addresses: [nowhere]}]", ("machine a", "'nowhere'")),
        ("machines: [{name: a, state: broken}]", ("running, stopped, gone",)),
        ("machines: [{name: a, labels: {node.kubernetes.io/x: y}}]", ("node.kubernetes.io/x",)),
        ("machines: [{name: a, labels: {k8s.io/x: y}}]", ("k8s.io/x",)),
        ("machines: [{name: a, labels: {a b: c}}]", ("'a b' is not a name of a label",)),
        ("machines: [{name: a, labels: {/b: c}}]", ("'/b' is not a name of a label",)),
        ("machines: [{name: a, labels: {b: c d}}]", ("labels: b: 'c d' must be",)),
        ("machines: [{name: a, zone: -z}]", ("machine a: zone: '-z' must be",)),
        ("defaults: {region: at home}\nmachines: [{name: a}]", ("region: 'at home' must be",)),
        ("machines: []", ("no machine", "delete the file")),
        ("", ("machines", "required")),
        ("machines: [{name: a", ("not YAML",)),
        ("machine: []\nmachines: [{name: a}]", ("machine", "did you mean machines")),
        ("- name: a", ("mapping",)),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(text: str, words: tuple[str, ...]) -> None:
    (problem,) = problems(text)
    assert problem.startswith("1.yaml:")
    assert all(word in problem for word in words), problem


def test_all_mistakes_of_all_files_are_reported_at_once() -> None:
    found = problems("machines: [{name: a}, {name: b, x: y}]", ONE, "", "machines: [{name: n1}]")
    assert [text.partition(":")[0] for text in found] == ["1.yaml", "3.yaml", "4.yaml"]
    assert "another one, in 2.yaml, has the name n1" in found[2]


class Place:
    """An inventory on disk, and its reader."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pause: Callable[[], None] = lambda: None
        self._reader = InventoryReader(str(path), Defaults(), self._paused)

    def _paused(self) -> None:
        self.pause()

    def write(self, text: str) -> None:
        self.path.write_text(dedent(text))

    def names(self) -> set[str]:
        """The machines of an inventory that is not stale."""
        found = self._reader.read()
        assert not found.stale
        return set(found.by_name)

    def stale(self) -> tuple[set[str], str]:
        """The machines of one that is, and why."""
        found = self._reader.read()
        assert found.stale
        return set(found.by_name), found.stale

    def problems(self) -> tuple[str, ...]:
        with pytest.raises(ConfigError) as caught:
            self._reader.read()
        return caught.value.problems


@pytest.fixture
def file(tmp_path: Path) -> Place:
    return Place(tmp_path / "machines.yaml")


def metric(name: str, labels: Mapping[str, str] | None = None) -> float | None:
    return REGISTRY.get_sample_value(f"proreus_local_inventory_{name}", dict(labels or {}))


def test_a_changed_file_is_read_again(file: Place) -> None:
    file.write(ONE)
    assert file.names() == {"n1"}
    before = file.path.stat()
    file.write("machines: [{name: n9}]")
    # The time of change proves nothing: what counts is the content.
    os.utime(file.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.names() == {"n9"}


@pytest.mark.parametrize(
    "broken", ["", "machines: []", "machines: [{na", "machines: [{name: n1, x: y}]"]
)
def test_a_broken_file_leaves_the_last_good_one_in_force(
    file: Place, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    file.write(TWO)
    assert file.names() == {"n1", "n2"}
    file.write(broken)
    caplog.clear()  # of what is told before, at the level that another test has set
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            known, why = file.stale()
            assert known == {"n1", "n2"}
    assert "machines.yaml" in why
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert metric("problems") == 1
    file.write(ONE)
    assert file.names() == {"n1"}
    assert metric("problems") == 0
    assert metric("machines", {"state": "running"}) == 1
    assert metric("machines", {"state": "gone"}) == 0


def test_a_file_is_used_once_it_is_written(file: Place) -> None:
    """A half of it may be valid: here it says that a machine is gone which is another one."""
    half = "machines:\n- name: n1\n  state: gone\n"
    file.write(ONE)
    assert file.names() == {"n1"}
    file.write(half)
    file.pause = lambda: file.write(f"{half}  id: old\n- name: n1\n- name: n2\n")
    assert file.names() == {"n1", "n2"}
    file.write(half)
    count = iter(range(100))
    file.pause = lambda: file.write(f"machines: [{{name: n{next(count)}}}]")
    known, why = file.stale()
    assert known == {"n1", "n2"}
    assert "changes all the time" in why


def test_a_file_that_vanishes_leaves_the_last_good_one_in_force(file: Place) -> None:
    file.write(ONE)
    assert file.names() == {"n1"}
    file.path.unlink()
    known, why = file.stale()
    assert known == {"n1"}
    assert "cannot read" in why
    file.write(ONE)
    assert file.names() == {"n1"}


def test_without_any_good_one_there_is_nothing_to_know(file: Place) -> None:
    for _ in range(2):
        assert "cannot read" in file.problems()[0]
    file.write("machines: [{name: n1, x: y}]")
    for _ in range(2):
        assert "x" in file.problems()[0]
    file.write(ONE)
    assert file.names() == {"n1"}


def test_a_file_that_is_not_text_is_named(file: Place) -> None:
    file.path.write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in file.problems()[0]


def test_a_directory_holds_one_inventory_in_many_files(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert "holds no file *.json or *.yaml or *.yml" in place.problems()[0]
    (tmp_path / "rack-1.yaml").write_text(ONE)
    (tmp_path / "rack-2.yml").write_text("machines: [{name: n2}]")
    (tmp_path / "rack-3.json").write_text('{"machines": [{"name": "n3"}]}')
    (tmp_path / ".rack-4.yaml").write_text("half-writ")
    (tmp_path / "notes.txt").write_text("not an inventory")
    assert place.names() == {"n1", "n2", "n3"}
    (tmp_path / "rack-2.yml").write_text("")
    known, why = place.stale()
    assert known == {"n1", "n2", "n3"}
    assert "rack-2.yml" in why
    (tmp_path / "rack-2.yml").unlink()
    assert place.names() == {"n1", "n3"}


def test_a_link_that_leads_nowhere_hides_no_machines(tmp_path: Path) -> None:
    """Such as one to a file system that is not mounted now."""
    (tmp_path / "inventory").mkdir()
    place = Place(tmp_path / "inventory")
    (tmp_path / "inventory" / "rack-1.yaml").write_text(ONE)
    (tmp_path / "rack-2.yaml").write_text("machines: [{name: n2}]")
    (tmp_path / "inventory" / "rack-2.yaml").symlink_to(tmp_path / "rack-2.yaml")
    (tmp_path / "inventory" / "rack-3.yaml").mkdir()
    assert place.names() == {"n1", "n2"}
    (tmp_path / "rack-2.yaml").unlink()
    known, why = place.stale()
    assert known == {"n1", "n2"}
    assert "cannot read" in why
    (tmp_path / "inventory" / "rack-2.yaml").unlink()
    assert place.names() == {"n1"}


def test_a_mounted_configmap_is_followed_through_its_links(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for name, text in (("..first", ONE), ("..second", "machines: [{name: n2}]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "machines.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..first")
    (tmp_path / "machines.yaml").symlink_to("..data/machines.yaml")
    assert place.names() == {"n1"}
    (tmp_path / "..new").symlink_to("..second")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert place.names() == {"n2"}
