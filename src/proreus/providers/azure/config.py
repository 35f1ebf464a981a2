"""The cloud-config of the provider `azure`: the official azure.json, in JSON or YAML, unmodified.

Names that the official manager does not know it passes over; so they are warned about here, and
not refused. Keys that mean nothing here are known, so that nobody is warned of them.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final
from urllib.parse import urlsplit

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.config_merge import ConfigSource
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.azure.multiple import Configuration, several_problems

STACK: Final = "azurestackcloud"
"""The name of a cloud whose endpoints it tells itself."""
CLOUDS: Final = frozenset(
    {"", "azurecloud", "azurepubliccloud", "azurechinacloud", "azureusgovernment",
     "azureusgovernmentcloud", STACK}
)  # fmt: skip
_GONE: Final = "azuregermancloud"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


_OFFICIAL: Final = {
    word: word.upper() for word in ("api", "ip", "lb", "qps", "slb", "snat", "ttl", "vm", "vmss")
}
"""Words that the official file writes in capitals, where a key does not begin with them."""
_SPELT: Final = {
    "network_resource_subscription_id": "networkResourceSubscriptionID",
    "network_resource_tenant_id": "networkResourceTenantID",
    "user_assigned_identity_id": "userAssignedIdentityID",
}
"""Keys of the file whose spelling follows no rule."""


def _rename(field: str) -> str:
    first, *rest = field.strip("_").split("_")
    spelt = first + "".join(_OFFICIAL.get(word, word.capitalize()) for word in rest)
    return _SPELT.get(field, spelt)


class VMType(StrEnum):
    """The kinds of machines that nodes are."""

    STANDARD = "standard"
    """Virtual machines, in availability sets or not."""
    VMSS = "vmss"
    """Scale sets of both modes, and virtual machines."""
    FLEX = "vmssflex"
    """Scale sets of the mode Flexible."""


class PoolType(StrEnum):
    """The way in which pools of load balancers name nodes."""

    NODE_IP_CONFIGURATION = "nodeipconfiguration"
    """Their network interfaces name the pool."""
    NODE_IP = "nodeip"
    """The pool names their addresses."""
    POD_IP = "podip"
    """Officially not there yet; the same as the first."""


class ProbeMode(StrEnum):
    """The target of health probes of `externalTrafficPolicy: Cluster`."""

    SERVICE_NODE_PORT = "servicenodeport"
    SHARED = "shared"


class Unused(ConfigSection, frozen=True, kw_only=True, rename=_rename):
    """Keys of the official file that have no effect here, and cause no warning."""

    use_instance_metadata_: bool = False
    put_vmss_vm_batch_size_: int = 0
    route_update_interval_in_seconds_: int = 0
    route_update_waiting_in_seconds_: int = 0
    load_balancer_backend_pool_update_interval_in_seconds_: int = 0
    enable_migrate_to_ip_based_backend_pool_api_: bool = False
    cloud_provider_backoff_: bool = False
    cloud_provider_backoff_mode_: str = ""
    cloud_provider_backoff_retries_: int = 0
    cloud_provider_backoff_exponent_: float = 0.0
    cloud_provider_backoff_duration_: int = 0
    cloud_provider_backoff_jitter_: float = 0.0
    cloud_provider_rate_limit_: bool = False
    cloud_provider_rate_limit_qps_: float = 0.0
    cloud_provider_rate_limit_bucket_: int = 0
    cloud_provider_rate_limit_qps_write_: float = 0.0
    cloud_provider_rate_limit_bucket_write_: int = 0
    enable_vmss_flex_nodes_: bool = False
    primary_availability_set_name_: str = ""
    primary_scale_set_name_: str = ""
    enable_multiple_standard_load_balancers_: bool = False
    disable_api_call_cache_: bool = False
    provider_vault_name_: str = ""
    provider_key_name_: str = ""
    provider_key_version_: str = ""
    node_pools_without_dedicated_slb_: str = ""
    non_vmss_uniform_nodes_cache_ttl_in_seconds_: int = 0
    availability_sets_cache_ttl_in_seconds_: int = 0
    load_balancer_cache_ttl_in_seconds_: int = 0
    nsg_cache_ttl_in_seconds_: int = 0
    pls_cache_ttl_in_seconds_: int = 0
    public_ip_cache_ttl_in_seconds_: int = 0
    route_table_cache_ttl_in_seconds_: int = 0
    vm_cache_ttl_in_seconds_: int = 0
    vmss_cache_ttl_in_seconds_: int = 0
    vmss_flex_cache_ttl_in_seconds_: int = 0
    vmss_flex_vm_cache_ttl_in_seconds_: int = 0
    vmss_virtual_machines_cache_ttl_in_seconds_: int = 0


class AzureConfig(Unused, frozen=True, kw_only=True, rename=_rename):
    """The whole file; what it means, key by key, is in the guide of the provider."""

    ignore_unknown: ClassVar[bool] = True

    cloud_config_type: str = ""
    cloud: str = ""
    tenant_id: str = ""
    subscription_id: str = ""
    aad_client_id: str = ""
    aad_client_secret: str = ""
    aad_client_cert_path: str = ""
    aad_client_cert_password: str = ""
    use_managed_identity_extension: bool = False
    user_assigned_identity_id: str = ""
    use_federated_workload_identity_extension: bool = False
    aad_federated_token_file: str = ""
    identity_system: str = ""
    disable_azure_stack_cloud: bool = False
    network_resource_tenant_id: str = ""
    network_resource_subscription_id: str = ""
    resource_manager_endpoint: str = ""
    user_agent: str = ""

    resource_group: str
    location: str = ""
    extended_location_name: str = ""
    extended_location_type: str = ""
    vnet_name: str = ""
    vnet_resource_group: str = ""
    subnet_name: str = ""
    security_group_name: str = ""
    security_group_resource_group: str = ""
    route_table_name: str = ""
    route_table_resource_group: str = ""

    vm_type: str = VMType.VMSS.value
    disable_availability_set_nodes: bool = False
    resource_graph: bool = False

    tags: str = ""
    tags_map: Mapping[str, str] = MappingProxyType({})
    system_tags: str = ""

    load_balancer_sku: str = "standard"
    load_balancer_name: str = ""
    load_balancer_resource_group: str = ""
    private_link_service_resource_group: str = ""
    load_balancer_backend_pool_configuration_type: str = PoolType.NODE_IP_CONFIGURATION.value
    pre_configured_backend_pool_load_balancer_types: str = ""
    exclude_master_from_standard_lb: bool = True
    disable_outbound_snat: bool = False
    maximum_load_balancer_rule_count: int = 250
    cluster_service_load_balancer_health_probe_mode: str = ProbeMode.SERVICE_NODE_PORT.value
    cluster_service_shared_load_balancer_health_probe_port: int = 10256
    cluster_service_shared_load_balancer_health_probe_path: str = "/healthz"
    multiple_standard_load_balancer_configurations: tuple[Configuration, ...] = ()

    tenants: Tenants = Tenants()

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        yield from self._wrong_cloud()
        yield from self._wrong_credentials()
        yield from self._wrong_words()
        if not self.resource_group:
            yield "resourceGroup: give the resource group of the cluster"
        if not self.subscription_id:
            yield "subscriptionId: give the subscription of the cluster"
        if self.load_balancer_sku.lower() != "standard":
            yield (
                "loadBalancerSku: must be standard: Azure has ended load balancers of the SKU"
                f" {self.load_balancer_sku}, upgrade them first"
            )
        if self.network_resource_tenant_id.lower() not in {"", self.tenant_id.lower()}:
            yield "networkResourceTenantID: another tenant is not supported by this provider"
        if self.resource_graph and self.is_stack:
            yield "resourceGraph: an Azure Stack Hub has no Resource Graph: take it out"
        several = self.multiple_standard_load_balancer_configurations
        yield from several_problems(several)
        if several and (
            self.load_balancer_backend_pool_configuration_type.lower() != PoolType.NODE_IP
        ):
            yield (
                "loadBalancerBackendPoolConfigurationType: must be nodeIP with"
                " multipleStandardLoadBalancerConfigurations"
            )

    def _wrong_cloud(self) -> Iterator[str]:
        name = self.cloud.lower()
        if name == _GONE:
            yield f"cloud: {self.cloud} has ended"
        elif name not in CLOUDS and not self.resource_manager_endpoint:
            yield (
                "cloud: must be AzurePublicCloud, AzureChinaCloud, AzureUSGovernmentCloud or"
                " AzureStackCloud, or give resourceManagerEndpoint"
            )
        if name == STACK and not self.resource_manager_endpoint:
            yield "resourceManagerEndpoint: is required with the cloud AzureStackCloud"
        url = urlsplit(self.resource_manager_endpoint)
        is_safe = url.scheme == "https" or (url.scheme == "http" and url.hostname in _LOOPBACK)
        if self.resource_manager_endpoint and not (is_safe and url.hostname):
            yield "resourceManagerEndpoint: give a URL that begins with https://"

    def _wrong_credentials(self) -> Iterator[str]:
        if self.use_managed_identity_extension:
            return
        is_federated = self.use_federated_workload_identity_extension
        if is_federated and not self.aad_federated_token_file:
            yield (
                "aadFederatedTokenFile: is required with useFederatedWorkloadIdentityExtension; it"
                " may also be set as $AZURE_FEDERATED_TOKEN_FILE"
            )
        if not (is_federated or self.aad_client_secret or self.aad_client_cert_path):
            yield (
                "aadClientSecret: give it, aadClientCertPath, useManagedIdentityExtension or"
                " useFederatedWorkloadIdentityExtension"
            )
            return
        for key, value in (("aadClientId", self.aad_client_id), ("tenantId", self.tenant_id)):
            if not value:
                yield f"{key}: is required with these credentials"

    def _wrong_words(self) -> Iterator[str]:
        words: tuple[tuple[str, str, type[StrEnum]], ...] = (
            ("vmType", self.vm_type, VMType),
            (
                "loadBalancerBackendPoolConfigurationType",
                self.load_balancer_backend_pool_configuration_type,
                PoolType,
            ),
            (
                "clusterServiceLoadBalancerHealthProbeMode",
                self.cluster_service_load_balancer_health_probe_mode,
                ProbeMode,
            ),
        )
        for key, value, known in words:
            if value.lower() not in set(known):
                yield f"{key}: must be one of {', '.join(known)}"
        if self.pre_configured_backend_pool_load_balancer_types.lower() not in {
            "", "internal", "external", "all",
        }:  # fmt: skip
            yield "preConfiguredBackendPoolLoadBalancerTypes: must be internal, external or all"
        if self.cloud_config_type.lower() not in {"", *ConfigSource}:
            yield "cloudConfigType: must be file, secret or merge"
        is_mixed = self.vm_type.lower() == VMType.VMSS
        if self.disable_availability_set_nodes and not is_mixed:
            yield "disableAvailabilitySetNodes: is only for vmType vmss"

    @property
    def machines(self) -> VMType:
        """The kinds of machines that nodes are."""
        return VMType(self.vm_type.lower())

    @property
    def pools(self) -> PoolType:
        """The way in which pools name nodes."""
        found = PoolType(self.load_balancer_backend_pool_configuration_type.lower())
        return PoolType.NODE_IP_CONFIGURATION if found is PoolType.POD_IP else found

    @property
    def shares_probe(self) -> bool:
        """Whether Services with `externalTrafficPolicy: Cluster` share one probe."""
        mode = self.cluster_service_load_balancer_health_probe_mode.lower()
        return mode == ProbeMode.SHARED

    @property
    def is_stack(self) -> bool:
        """Whether the cloud is an Azure Stack Hub, whose API is older."""
        return self.cloud.lower() == STACK and not self.disable_azure_stack_cloud

    @property
    def network_subscription(self) -> str:
        """The subscription of load balancers, addresses, security group and routes."""
        return self.network_resource_subscription_id or self.subscription_id

    @property
    def shared_tags(self) -> dict[str, str]:
        """The tags of load balancers, security group, route table and public IPs."""
        pairs = (one.partition("=") for one in self.tags.split(",") if "=" in one)
        named = {key.strip(): value.strip() for key, _, value in pairs if key.strip()}
        return {**named, **self.tags_map}

    def preconfigures(self, *, internal: bool) -> bool:
        """Tell whether somebody else puts nodes into the pool of a kind of load balancer."""
        kinds = self.pre_configured_backend_pool_load_balancer_types.lower()
        return kinds in {"all", "internal" if internal else "external"}
