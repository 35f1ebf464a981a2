"""The provider interface: verbs, values, errors, config and plugins, all that an author uses.

Everything that a provider needs is imported from here; Kubernetes objects are in
`proreus.kube.objects`.
"""

from proreus.cloudprovider.adapters import per_route, per_service
from proreus.cloudprovider.collection import Collection
from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.config import read as read_config
from proreus.cloudprovider.context import (
    CallHooks,
    CallRecord,
    Context,
    EventSink,
    Lister,
    Outcome,
    scope,
)
from proreus.cloudprovider.credential import Credential, Issued, bearer
from proreus.cloudprovider.errors import (
    CallTimeout,
    CloudError,
    ConfigError,
    IdentityConflict,
    ImplementedElsewhere,
    InvalidRequest,
    NotSupported,
    RetryAfter,
    Throttled,
    Unauthenticated,
)
from proreus.cloudprovider.firewalls import (
    RuleDiff,
    RuleRefusal,
    change_rules,
    delete_group,
    diff_rules,
)
from proreus.cloudprovider.flags import ProviderFlag
from proreus.cloudprovider.identity import (
    MARK_CLUSTER,
    MARK_CLUSTER_UID,
    MARK_FINGERPRINT,
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
    OwnedObject,
    marks,
)
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    Instances,
    InstanceState,
    NotFound,
    Ownership,
    Scopes,
    names_machine,
    scope_of,
)
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    Endpoints,
    EndpointTarget,
    EnsureAnswer,
    Ensured,
    Frontend,
    HealthCheck,
    Host,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    PartChange,
    Pending,
    Previews,
)
from proreus.cloudprovider.lookups import ask_all, attempt, in_parts
from proreus.cloudprovider.machines import in_bulk, per_node
from proreus.cloudprovider.names import LABEL_VALUE, NameForm, default_load_balancer_name
from proreus.cloudprovider.operations import finished
from proreus.cloudprovider.ownership import Naming, Owner, Tenants, are_marks_of, refusal
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.plugins import (
    InitCloudProvider,
    RegisterCloudProvider,
    available,
    config_text,
    load,
    with_config,
)
from proreus.cloudprovider.provider import (
    CloudProvider,
    Clusters,
    PodCIDRs,
    SSHKeys,
    Volumes,
)
from proreus.cloudprovider.recorded import MadeFrom, Record, desired_digest
from proreus.cloudprovider.refused import ErrorBody, Reason, Refused, cloud_error, retry_after
from proreus.cloudprovider.requests import (
    Answer,
    Body,
    Request,
    form_body,
    json_body,
    xml_body,
)
from proreus.cloudprovider.rest import RestClient, tls_context
from proreus.cloudprovider.routes import Route, Routes
from proreus.cloudprovider.steps import converge, foresee
from proreus.cloudprovider.whole import Objects, per_object
from proreus.kube.admission import AdmissionRequest, AdmissionResponse, Webhook

__all__ = [
    "LABEL_VALUE",
    "MARK_CLUSTER",
    "MARK_CLUSTER_UID",
    "MARK_FINGERPRINT",
    "MARK_SERVICE",
    "MARK_SERVICE_UID",
    "AdmissionRequest",
    "AdmissionResponse",
    "Answer",
    "Body",
    "CallHooks",
    "CallRecord",
    "CallTimeout",
    "CloudError",
    "CloudProvider",
    "ClusterIdentity",
    "Clusters",
    "Collection",
    "ConfigError",
    "ConfigSection",
    "Context",
    "Credential",
    "DeleteAnswer",
    "Done",
    "EndpointTarget",
    "Endpoints",
    "EnsureAnswer",
    "Ensured",
    "ErrorBody",
    "EventSink",
    "Frontend",
    "HealthCheck",
    "Host",
    "HostPolicy",
    "IdentityConflict",
    "ImplementedElsewhere",
    "InitCloudProvider",
    "Instance",
    "InstanceAnswer",
    "InstanceState",
    "Instances",
    "InvalidRequest",
    "Issued",
    "Lister",
    "LoadBalancer",
    "LoadBalancerRef",
    "LoadBalancers",
    "MadeFrom",
    "NameForm",
    "Naming",
    "NotFound",
    "NotSupported",
    "Objects",
    "Outcome",
    "OwnedObject",
    "Owner",
    "Ownership",
    "PartChange",
    "Pending",
    "PodCIDRs",
    "Previews",
    "ProviderFlag",
    "Reason",
    "Record",
    "Refused",
    "RegisterCloudProvider",
    "Request",
    "RestClient",
    "RetryAfter",
    "Route",
    "Routes",
    "RuleDiff",
    "RuleRefusal",
    "SSHKeys",
    "Scopes",
    "Tenants",
    "Throttled",
    "Unauthenticated",
    "Volumes",
    "Webhook",
    "are_marks_of",
    "ask_all",
    "attempt",
    "available",
    "bearer",
    "change_rules",
    "cloud_error",
    "config_text",
    "converge",
    "default_load_balancer_name",
    "delete_group",
    "desired_digest",
    "diff_rules",
    "finished",
    "foresee",
    "form_body",
    "in_bulk",
    "in_parts",
    "json_body",
    "load",
    "marks",
    "names_machine",
    "pages",
    "per_node",
    "per_object",
    "per_route",
    "per_service",
    "read_config",
    "refusal",
    "retry_after",
    "scope",
    "scope_of",
    "tls_context",
    "with_config",
    "xml_body",
]
