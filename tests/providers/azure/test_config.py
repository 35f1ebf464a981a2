"""The cloud-config: the official file unmodified, everything wrong at once."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from proreus.app import command_line
from proreus.app.clouds.config import rights_of
from proreus.app.doctor.options import DoctorOptions
from proreus.app.doctor.rights import needed_caches
from proreus.app.flags import FlagError
from proreus.app.options import Options, problems
from proreus.app.rights import roles
from proreus.app.run import main
from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.selectors import NAMESPACE_NAME
from proreus.providers.azure import AzureCloud
from proreus.providers.azure.config import AzureConfig

from .site import settings

AKS: dict[str, Any] = {
    "cloud": "AzurePublicCloud",
    "tenantId": "t",
    "subscriptionId": "s",
    "aadClientId": "msi",
    "aadClientSecret": "msi",
    "resourceGroup": "MC_rg_cluster_westeurope",
    "location": "westeurope",
    "vmType": "vmss",
    "subnetName": "aks-subnet",
    "securityGroupName": "aks-agentpool-nsg",
    "vnetName": "aks-vnet",
    "vnetResourceGroup": "",
    "routeTableName": "aks-agentpool-routetable",
    "primaryAvailabilitySetName": "",
    "primaryScaleSetName": "aks-agentpool-vmss",
    "cloudProviderBackoffMode": "v2",
    "cloudProviderBackoff": True,
    "cloudProviderBackoffRetries": 6,
    "cloudProviderBackoffExponent": 1.5,
    "cloudProviderBackoffJitter": 1.0,
    "cloudProviderBackoffDuration": 5,
    "cloudProviderRateLimit": True,
    "cloudProviderRateLimitQPS": 10,
    "cloudProviderRateLimitBucket": 100,
    "cloudProviderRateLimitQPSWrite": 10,
    "cloudProviderRateLimitBucketWrite": 100,
    "useManagedIdentityExtension": True,
    "userAssignedIdentityID": "u",
    "useInstanceMetadata": True,
    "loadBalancerSku": "Standard",
    "disableOutboundSNAT": False,
    "excludeMasterFromStandardLB": True,
    "providerVaultName": "",
    "maximumLoadBalancerRuleCount": 250,
    "providerKeyName": "k8s",
    "providerKeyVersion": "",
    "putVMSSVMBatchSize": 100,
    "vmssVirtualMachinesCacheTTLInSeconds": 60,
    "enableVmssFlexNodes": False,
    "tagsMap": {"a": "b=c,d"},
}
"""An azure.json as nodes of AKS have it."""


def config(given: dict[str, Any], warned: list[str] | None = None) -> AzureConfig:
    warnings: list[str] = [] if warned is None else warned
    return read(json.dumps(given), AzureConfig, source="azure.json", warn=warnings.append)


@pytest.mark.parametrize("form", ["azure.json", "azure.yaml"])
def test_the_official_file_is_read_unmodified_and_without_a_warning(form: str) -> None:
    text = json.dumps(AKS) if form.endswith("json") else yaml.dump(AKS)
    warned: list[str] = []
    found = read(text, AzureConfig, source=form, warn=warned.append)
    assert not warned
    assert found.resource_group == "MC_rg_cluster_westeurope"
    assert found.shared_tags == {"a": "b=c,d"}
    assert found.exclude_master_from_standard_lb


def test_unknown_names_are_warned_about() -> None:
    warned: list[str] = []
    config({**AKS, "routeRateLimit": {"cloudProviderRateLimitQPS": 1}}, warned)
    assert len(warned) == 1
    assert "routeRateLimit" in warned[0]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    given = {
        "cloud": "AzureMoonCloud",
        "resourceGroup": "g",
        "loadBalancerSku": "basic",
        "vmType": "toaster",
        "disableAvailabilitySetNodes": True,
        "cloudConfigType": "vault",
        "loadBalancerBackendPoolConfigurationType": "x",
        "clusterServiceLoadBalancerHealthProbeMode": "x",
        "preConfiguredBackendPoolLoadBalancerTypes": "x",
        "networkResourceTenantID": "other",
        "multipleStandardLoadBalancerConfigurations": [
            {"name": name, "primaryVMSet": "x"} for name in ("a", "a-internal")
        ],
        "useFederatedWorkloadIdentityExtension": True,
    }
    with pytest.raises(ConfigError) as error:
        config(given)
    told = "\n".join(error.value.problems)
    for key in (*given, "subscriptionId", "aadFederatedTokenFile", "aadClientId", "tenantId"):
        if key not in {"resourceGroup", "useFederatedWorkloadIdentityExtension"}:
            assert f" {key}: " in told, key


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"primaryVMSet": ""}, "primaryVMSet: give the scale set"),
        ({"name": ""}, "name: give the load balancer's name"),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "k", "operator": "Is"}]}},
            "operator: 'Is' must be In, NotIn, Exists or DoesNotExist",
        ),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "k", "operator": "In"}]}},
            "values: give some with In and NotIn",
        ),
    ],
)
def test_a_wrong_load_balancer_of_several_is_told(entry: dict[str, Any], told: str) -> None:
    given = {
        "loadBalancerBackendPoolConfigurationType": "nodeIP",
        "multipleStandardLoadBalancerConfigurations": [
            {"name": "a", "primaryVMSet": "x", "activeNodes": ["n"], **entry}
        ],
    }
    with pytest.raises(ConfigError, match=told):
        config({**AKS, **given})


@pytest.mark.parametrize(
    ("second", "more"),
    [
        (None, set[str]()),
        ({}, {"endpoint_slices"}),
        (
            {"serviceNamespaceSelector": {"matchLabels": {NAMESPACE_NAME: "a"}}},
            {"endpoint_slices"},
        ),
        (
            {"serviceNamespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
            {"endpoint_slices", "namespaces"},
        ),
    ],
)  # fmt: skip
async def test_the_cloud_config_says_what_is_read_of_the_cluster(
    tmp_path: Path, second: dict[str, Any] | None, more: set[str]
) -> None:
    given = dict(AKS)
    if second is not None:
        given |= {
            "loadBalancerBackendPoolConfigurationType": "nodeIP",
            "multipleStandardLoadBalancerConfigurations": [
                {"name": "a", "primaryVMSet": "x"},
                {"name": "b", "primaryVMSet": "y", **second},
            ],
        }
    file = tmp_path / "azure.json"
    file.write_text(json.dumps(given))
    expected = {"nodes", "services"} | more
    assert AzureCloud(config(given)).needs == expected
    flags: dict[str, Any] = {"cloud_provider": "azure", "cloud_config": str(file)}
    assert rights_of(Options(**flags)) == expected
    client: Any = None
    assert await needed_caches(DoctorOptions(**flags), client) == expected
    file.unlink()
    assert rights_of(Options(**flags)) == {"nodes", "services", "endpoint_slices", "namespaces"}
    assert await needed_caches(DoctorOptions(**flags), client) == {"nodes", "services"}


def test_several_load_balancers_need_pools_by_address() -> None:
    given = {"multipleStandardLoadBalancerConfigurations": [{"name": "a", "primaryVMSet": "x"}]}
    with pytest.raises(ConfigError, match="must be nodeIP"):
        config({**AKS, **given})


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"aadClientSecret": None}, "aadClientSecret"),
        ({"aadClientId": None}, "aadClientId"),
        ({"resourceGroup": ""}, "resourceGroup"),
        ({"resourceManagerEndpoint": "http://example.org"}, "resourceManagerEndpoint"),
        ({"resourceManagerEndpoint": None}, "resourceManagerEndpoint"),
        ({"cloud": "AzureGermanCloud"}, "cloud"),
    ],
)
def test_single_mistakes(more: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f" {key}: "):
        config(settings("https://management.local.azurestack.external", **more))


def test_variables_of_workload_identity_stand_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    names = AzureCloud.config_environment
    values = {name: f"of {name}" for name in names}
    given = {
        "subscriptionId": "s",
        "resourceGroup": "g",
        "useFederatedWorkloadIdentityExtension": True,
    }
    found = read(
        json.dumps(given), AzureConfig, source="azure.json", variables=names, environment=values
    )
    assert found.aad_client_id == "of AZURE_CLIENT_ID"
    assert found.tenant_id == "of AZURE_TENANT_ID"
    assert found.aad_federated_token_file == "of AZURE_FEDERATED_TOKEN_FILE"


def test_the_provider_needs_a_cloud_config() -> None:
    with pytest.raises(ConfigError, match="azure"):
        AzureCloud(None)


def options(*args: str) -> Options:
    return command_line.parse(Options, ("--cloud-provider=azure", *args), "ccm", "").options


@pytest.mark.parametrize(
    ("args", "place"),
    [
        (("--cloud-config-secret-name=a",), "kube-system/a/cloud-config"),
        (
            (
                "--cloud-config-secret-name=a",
                "--cloud-config-secret-namespace=b",
                "--cloud-config-key=c",
                "--enable-dynamic-reloading",
                "--cloud-config=",
            ),
            "b/a/c",
        ),
        (("--cloud-config-secret-name=", "--enable-dynamic-reloading=true"), ""),
        (("--cloud-config-secret-name=a", "--cloud-config-secret=x/y/z"), "x/y/z"),
    ],
)
def test_the_official_flags_name_the_secret_of_the_cloud_config(
    args: tuple[str, ...], place: str
) -> None:
    assert options(*args).cloud_config_secret == place


def test_the_manager_may_read_the_secret_that_the_official_flags_name() -> None:
    found = roles(options("--cloud-config-secret-name=a"))
    named = {
        (role.namespace, *rule.names)
        for role in found
        for rule in role.rules
        if rule.resource == "secrets"
    }
    assert named == {("kube-system", "a")}


def test_a_secret_that_is_named_is_known_beside_other_mistakes() -> None:
    with pytest.raises(FlagError) as error:
        options("--cloud-config-secret-name=a", "--enable-dynamic-reloading=perhaps", "-v=much")
    assert len(error.value.problems) == 2
    readable = error.value.readable
    assert isinstance(readable, Options)
    assert readable.cloud_config_secret == "kube-system/a/cloud-config"


@pytest.mark.parametrize("flag", ["name", "namespace"])
def test_parts_of_a_secrets_name_have_no_slash(flag: str) -> None:
    with pytest.raises(FlagError, match=f"--cloud-config-secret-{flag}: 'a/b' must be a name"):
        options(f"--cloud-config-secret-{flag}=a/b")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ('{"resourceGroup": "g"}', "file"),
        ('{"cloudConfigType": "File"}', "file"),
        ("cloudConfigType: secret", "secret"),
        ('{"cloudconfigtype": "Merge", "vmType": "vmss"}', "merge"),
        ('{"cloudConfigType": "vault"}', "file"),
        ('{"cloudConfigType": ', "file"),
        ("", "file"),
    ],
)
def test_the_file_tells_whether_the_secret_beside_it_counts(
    tmp_path: Path, file: str, source: str
) -> None:
    path = tmp_path / "azure.conf"
    path.write_text(file)
    found = options("--cloud-config-secret-name=a", f"--cloud-config={path}")
    assert found.cloud_config_secret == ("" if source == "file" else "kube-system/a/cloud-config")
    assert found.merge_cloud_config == (source == "merge")
    assert found.cloud_config == ("" if source == "secret" else str(path))
    assert not problems(found)


def test_without_a_secret_that_flags_name_the_file_counts_whatever_it_says(tmp_path: Path) -> None:
    path = tmp_path / "azure.json"
    path.write_text('{"cloudConfigType": "merge"}')
    found = options(f"--cloud-config={path}", "--enable-dynamic-reloading=true")
    assert (found.cloud_config, found.cloud_config_secret) == (str(path), "")


def test_a_role_is_made_for_the_secret_where_the_file_is_not_at_hand() -> None:
    found = options("--cloud-config-secret-name=a", "--cloud-config=/nowhere/azure.json")
    names = {
        name
        for role in roles(found)
        for rule in role.rules
        if rule.resource == "secrets"
        for name in rule.names
    }
    assert names == {"a"}


def test_a_file_that_is_to_be_merged_and_cannot_be_read_ends_the_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = ("--cloud-provider=azure", "--cloud-config-secret-name=a", "--cloud-config=/nowhere/a")
    assert main([*args, "--master=http://127.0.0.1:1"]) == 2
    assert "--cloud-config: cannot read /nowhere/a" in capsys.readouterr().err
