"""The cloud-config: the official file unmodified, everything wrong at once."""

import json
from typing import Any

import pytest
import yaml

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
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
        "cloudConfigType": "secret",
        "loadBalancerBackendPoolConfigurationType": "x",
        "clusterServiceLoadBalancerHealthProbeMode": "x",
        "preConfiguredBackendPoolLoadBalancerTypes": "x",
        "networkResourceTenantID": "other",
        "multipleStandardLoadBalancerConfigurations": [{"name": "a"}],
        "useFederatedWorkloadIdentityExtension": True,
    }
    with pytest.raises(ConfigError) as error:
        config(given)
    told = "\n".join(error.value.problems)
    for key in (*given, "subscriptionId", "aadFederatedTokenFile", "aadClientId", "tenantId"):
        if key not in {"resourceGroup", "useFederatedWorkloadIdentityExtension"}:
            assert f" {key}: " in told, key


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
