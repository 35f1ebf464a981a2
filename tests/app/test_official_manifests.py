"""Official manifests start this manager with only the image changed, or are told what is missing."""

from pathlib import Path

import pytest

from proreus.app import cli, command_line, run
from proreus.app.flags import FlagError
from proreus.app.options import Options
from proreus.app.rights import roles
from proreus.cloudprovider import available, load

from ..official_manifests import CLOUD_CONFIG, KUBECONFIG, STARTS, Start, rules  # noqa: TID252 - tests are no package
from .test_cli import CLUSTER

CLOUD_CONFIGS = {
    "aws": "[Global]\nZone=us-east-1a\nVPC=vpc-1\nSubnetID=subnet-1\nKubernetesClusterTag=c\n",
    "azure": '{"tenantId": "t", "subscriptionId": "s", "resourceGroup": "g", "location": "l",'
    ' "aadClientId": "i", "aadClientSecret": "p", "vnetName": "v", "subnetName": "n",'
    ' "securityGroupName": "f", "routeTableName": "r"}',
    "cce": '{"ClusterId": "c", "Region": "bj", "AccessKeyID": "a", "SecretAccessKey": "s",'
    ' "MasterId": "m", "Endpoint": "e", "VpcId": "vpc-1"}',
    "vsphere": '[Global]\nuser=u\npassword=p\n[VirtualCenter "10.0.0.1"]\ndatacenters=d\n',
    "openstack": "[Global]\nauth-url=http://127.0.0.1:1/v3\nusername=u\npassword=p\n"
    "tenant-name=t\ndomain-name=Default\n",
}
SECRET = "--cloud-config-secret-name"
"""The flag of Azure's manager that names a Secret in the place of a file."""
CONFIGURED = [start for start in STARTS if not any(arg.startswith(SECRET) for arg in start.args)]


@pytest.fixture(autouse=True)
def in_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the manifests name, and an API server where none of them names it."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(CLUSTER)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return tmp_path


def filled(start: Start, directory: Path) -> list[str]:
    cloud_config = directory / "cloud.conf"
    cloud_config.write_text(CLOUD_CONFIGS.get(start.cloud, "{}"))
    places = {CLOUD_CONFIG: str(cloud_config), KUBECONFIG: str(directory / "kubeconfig")}
    args = list(start.args)
    for mark, path in places.items():
        args = [arg.replace(mark, path) for arg in args]
    return args


def named(start: Start) -> str:
    return start.source.replace("/", "-")


def parsed(args: list[str]) -> command_line.CommandLine[Options]:
    return command_line.parse(Options, args, "ccm", run.DESCRIPTION)


def test_all_six_official_managers_are_in_the_table() -> None:
    clouds = {"aws", "azure", "cce", "gce", "openstack", "vsphere"}
    assert {start.cloud for start in CONFIGURED} == clouds
    assert {start.cloud for start in STARTS} <= set(available())


@pytest.mark.parametrize("start", CONFIGURED, ids=named)
def test_a_manager_of_a_bundled_cloud_is_configured(start: Start, in_cluster: Path) -> None:
    options = parsed(filled(start, in_cluster)).options
    provider, cluster = run._configured(options)
    assert provider is not None
    assert provider.name == start.cloud
    assert cluster.server


def test_a_manifest_with_a_secret_of_azure_is_configured(in_cluster: Path) -> None:
    (start,) = set(STARTS) - set(CONFIGURED)
    options = parsed(filled(start, in_cluster)).options
    assert options.cloud_config_secret == "kube-system/azure-cloud-provider/cloud-config"
    provider, cluster = run._configured(options)
    assert provider is None
    assert cluster.server


def test_a_manager_of_another_cloud_lacks_nothing_but_its_provider(
    in_cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = Start("other", "", "", ("--cloud-provider=other", "--v=2", "--enable-other=true"))
    assert cli.cloud_controller_manager(filled(start, in_cluster)) == 2
    unread, missing = capsys.readouterr().err.splitlines()
    assert "--cloud-provider: 'other' is unknown; installed are aws, " in missing
    assert unread.partition("it is not installed: ")[2].split() == ["--enable-other"]


def may(cloud: str, group: str, resource: str, verb: str) -> bool:
    return any(
        rule["apiGroups"] == [group]
        and rule["resources"] == [resource]
        and not {verb, "*"}.isdisjoint(rule["verbs"])
        for rule in rules(cloud)
    )


@pytest.mark.parametrize(
    ("cloud", "more"),
    [
        ("aws", set()),
        (
            "openstack",
            {
                ("leases", "list"), ("leases", "watch"),
                ("tokenreviews", "create"), ("subjectaccessreviews", "create"),
            },
        ),
    ],
)  # fmt: skip
def test_the_rights_that_the_official_role_lacks_are_those_of_the_guide(
    cloud: str, more: set[tuple[str, str]]
) -> None:
    options = Options(cloud_provider=cloud, authentication_skip_lookup=True)
    lacking = {
        (rule.resource, verb)
        for role in roles(options, needs=load(cloud).needs)
        for rule in role.rules
        for verb in rule.verbs
        if not may(cloud, rule.group, rule.resource, verb)
    }
    assert lacking == {("namespaces", "get"), ("services", "get"), *more}


def test_flags_of_go_runner_are_dropped_and_reported() -> None:
    given = parsed(
        [
            "--log-file=/l",
            "--also-stdout=false",
            "-redirect-stderr",
            "/x/cloud-controller-manager",
            "-v=3",
        ]
    )
    assert given.options.v == 3
    assert given.go_runner == ("--log-file=/l", "--also-stdout=false", "-redirect-stderr")
    assert given.removed == ()


@pytest.mark.parametrize(
    "args",
    [
        ["--v=1", "/bin/aws-cloud-controller-manager"],
        ["--also-stdout=false", "--v=1"],
        ["/bin/sh", "-c", "x"],
        ["/bin/openstack-cloud-controller-manager", "/bin/openstack-cloud-controller-manager"],
        ["/bin/cloud-node-manager"],
    ],
)
def test_what_no_official_image_would_run_is_refused(args: list[str]) -> None:
    with pytest.raises(FlagError):
        parsed(args)
