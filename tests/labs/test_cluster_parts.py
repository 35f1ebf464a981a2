"""What of a real cluster can be tried without root: images, addresses, results, refusals."""

import hashlib
import ipaddress
import json
import tarfile
from pathlib import Path

import pytest

from labs.cluster import Cluster, ClusterError, Settings
from labs.cluster.e2e import Spec, read, table
from labs.cluster.images import Root, pack
from labs.cluster.network import IPV4, IPV6, MOST_NODES, Family, families
from labs.cluster.programs import Programs, cni_directory, why_not
from proreus.testing.controlplane import Assets

JUNIT = """<testsuites><testsuite>
<testcase name="[It] b passes" status="passed" time="1.5"></testcase>
<testcase name="[It] a fails" status="failed" time="2"><failure message="one&#xA;two"></failure></testcase>
<testcase name="[It] c panics" status="panicked" time="3"><error message=""></error></testcase>
<testcase name="[It] is not for this cloud" status="skipped" time="0"><skipped></skipped></testcase>
<testcase name="[BeforeSuite]" status="passed" time="0"></testcase>
</testsuite></testsuites>"""


def test_an_image_holds_its_names_and_the_digest_of_its_layer(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    (tmp_path / "greeting").write_text("hello")
    root.copy(tmp_path / "greeting", "/opt/greeting")

    pack(root.path, ["localhost/a:1", "localhost/b:2"], tmp_path / "x.tar", entrypoint=["/run"])

    with tarfile.open(tmp_path / "x.tar") as image:
        (manifest,) = json.loads(content(image, "manifest.json"))
        config = json.loads(content(image, manifest["Config"]))
        layer = content(image, manifest["Layers"][0])
        image.extract(manifest["Layers"][0], tmp_path / "out", filter="data")
    assert manifest["RepoTags"] == ["localhost/a:1", "localhost/b:2"]
    assert config["config"]["Entrypoint"] == ["/run"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(tmp_path / "out" / manifest["Layers"][0]) as files:
        assert content(files, "./opt/greeting") == b"hello"
        assert {(one.uid, one.gid) for one in files.getmembers()} == {(0, 0)}


def content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


@pytest.mark.parametrize("family", [IPV4, IPV6])
def test_no_two_networks_of_a_family_overlap(family: Family) -> None:
    texts = (family.nodes, family.clients, family.pods, family.services, family.load_balancers)
    networks = [ipaddress.ip_network(text) for text in texts]

    for index, one in enumerate(networks):
        assert not any(one.overlaps(other) for other in networks[index + 1 :])
    assert ipaddress.ip_address(family.node(MOST_NODES)) in networks[0]
    assert family.pods_of_a_node > networks[2].prefixlen


def test_ipv6_is_second_and_only_where_it_is_asked_for() -> None:
    assert families(ipv6=False) == (IPV4,)
    assert families(ipv6=True) == (IPV4, IPV6)


def test_results_are_those_of_specs_that_ran(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text(JUNIT)

    specs = list(read(junit))

    assert specs == [
        Spec("a fails", 2, "one two"),
        Spec("b passes", 1.5, ""),
        Spec("c panics", 3, "failed"),
    ]
    assert "| a fails | 2 | one two |" in table(specs)
    assert "| b passes | 2 | passed |" in table(specs)


def test_missing_programs_are_all_named_with_the_packages_that_have_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    said = "\n".join(why_not())

    assert "containerd" in said
    assert "apt install" in said
    assert "nftables" in said


@pytest.mark.parametrize("nodes", [0, MOST_NODES + 1])
def test_a_number_of_nodes_that_no_machine_bears_is_refused(nodes: int, tmp_path: Path) -> None:
    programs = Programs(tmp_path, Assets(tmp_path), cni_directory() or tmp_path)

    with pytest.raises(ClusterError, match=f"{nodes} nodes: give 1 to {MOST_NODES}"):
        Cluster(Settings(nodes=nodes), programs, print)
