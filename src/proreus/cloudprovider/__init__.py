"""The provider interface: verbs, values, errors, config and plugins, all that an author uses.

Everything that a provider needs is imported from here; Kubernetes objects are in
`proreus.kube.objects`.
"""

from proreus.cloudprovider.adapters import per_route, per_service
from proreus.cloudprovider.annotations import AnnotationReader
from proreus.cloudprovider.background import Background
from proreus.cloudprovider.board import Board, Notice
from proreus.cloudprovider.calls import CallHooks, CallRecord, Outcome
from proreus.cloudprovider.collection import Collection
from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.config import read as read_config
from proreus.cloudprovider.config_merge import ConfigSource
from proreus.cloudprovider.config_values import camel_case
from proreus.cloudprovider.context import Context, EventSink, scope
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
    free_numbers,
)
from proreus.cloudprovider.flags import ProviderFlag
from proreus.cloudprovider.hints import Hints
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
    Confirms,
    Instance,
    InstanceAnswer,
    Instances,
    InstanceState,
    NotFound,
    Ownership,
    Scopes,
    confirmed_by,
    names_machine,
    scope_of,
)
from proreus.cloudprovider.listers import Lister
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
from proreus.cloudprovider.lookups import (
    all_but_refused,
    ask_all,
    attempt,
    foreign_id,
    in_parts,
    ownership_by_id,
)
from proreus.cloudprovider.machines import in_bulk, per_node
from proreus.cloudprovider.mark_forms import (
    LABELS,
    Description,
    LabelForm,
    TagList,
    one_value,
    owned_object,
    owner_of,
    read_one_value,
)
from proreus.cloudprovider.names import LABEL_VALUE, NameForm, default_load_balancer_name
from proreus.cloudprovider.operations import finished
from proreus.cloudprovider.ownership import (
    Naming,
    Owner,
    Tenants,
    Verdict,
    are_marks_of,
    refusal,
    verdict,
)
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
from proreus.cloudprovider.rest import RestClient, configured_tls, tls_context
from proreus.cloudprovider.routes import Route, Routes
from proreus.cloudprovider.standby import Standby
from proreus.cloudprovider.steps import (
    PlannedCall,
    converge,
    foresee,
    preview_plan,
    take_round,
)
from proreus.cloudprovider.volumes import handle_of, per_volume
from proreus.cloudprovider.whole import Objects, per_object
from proreus.kube.admission import AdmissionRequest, AdmissionResponse, Webhook

__all__ = [
    "LABELS",
    "LABEL_VALUE",
    "MARK_CLUSTER",
    "MARK_CLUSTER_UID",
    "MARK_FINGERPRINT",
    "MARK_SERVICE",
    "MARK_SERVICE_UID",
    "AdmissionRequest",
    "AdmissionResponse",
    "AnnotationReader",
    "Answer",
    "Background",
    "Board",
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
    "ConfigSource",
    "Confirms",
    "Context",
    "Credential",
    "DeleteAnswer",
    "Description",
    "Done",
    "EndpointTarget",
    "Endpoints",
    "EnsureAnswer",
    "Ensured",
    "ErrorBody",
    "EventSink",
    "Frontend",
    "HealthCheck",
    "Hints",
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
    "LabelForm",
    "Lister",
    "LoadBalancer",
    "LoadBalancerRef",
    "LoadBalancers",
    "MadeFrom",
    "NameForm",
    "Naming",
    "NotFound",
    "NotSupported",
    "Notice",
    "Objects",
    "Outcome",
    "OwnedObject",
    "Owner",
    "Ownership",
    "PartChange",
    "Pending",
    "PlannedCall",
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
    "Standby",
    "TagList",
    "Tenants",
    "Throttled",
    "Unauthenticated",
    "Verdict",
    "Volumes",
    "Webhook",
    "all_but_refused",
    "are_marks_of",
    "ask_all",
    "attempt",
    "available",
    "bearer",
    "camel_case",
    "change_rules",
    "cloud_error",
    "config_text",
    "configured_tls",
    "confirmed_by",
    "converge",
    "default_load_balancer_name",
    "delete_group",
    "desired_digest",
    "diff_rules",
    "finished",
    "foreign_id",
    "foresee",
    "form_body",
    "free_numbers",
    "handle_of",
    "in_bulk",
    "in_parts",
    "json_body",
    "load",
    "marks",
    "names_machine",
    "one_value",
    "owned_object",
    "owner_of",
    "ownership_by_id",
    "pages",
    "per_node",
    "per_object",
    "per_route",
    "per_service",
    "per_volume",
    "preview_plan",
    "read_config",
    "read_one_value",
    "refusal",
    "retry_after",
    "scope",
    "scope_of",
    "take_round",
    "tls_context",
    "verdict",
    "with_config",
    "xml_body",
]
