"""Define all flags in one table. Names, meanings and defaults are those of Go's CCM.

The groups are Structs that extend one another: `generic`, `cloud`, `serving`, and `Options` here.

Defaults that differ, each for a reason that ARCHITECTURE.md gives: `--kube-api-qps` and
`--kube-api-burst` (0: no limit), `--concurrent-node-syncs`, `--concurrent-service-syncs`,
`--route-reconciliation-period`. Flags that Go does not have are in the group "proreus", and
`--metrics-bind-address`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from proreus.app.flag_values import (
    LAST_PORT,
    above,
    at_least,
    boolean,
    duration,
    integer,
    levels,
    names,
    number,
    version_wanted,
)
from proreus.app.flags import Flag
from proreus.app.options.serving import ServingOptions
from proreus.controllers.node_ipam.plan import Mode, ranges
from proreus.controllers.settings import DEFAULTS
from proreus.controllers.table import select
from proreus.runtime import klog

MISC = "misc"
PROREUS = "proreus"

RETRY_JITTER = 1.2  # client-go: the retry period is stretched by up to this

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


def _secret_key(value: str) -> str:
    is_path = re.fullmatch(r"[^/]+/[^/]+/[^/]+", value)
    return "" if not value or is_path else "must be namespace/name/key"


class Options(ServingOptions, frozen=True, kw_only=True):
    """The values of all flags. Durations are in seconds."""

    v: Annotated[int, Flag(MISC, "Log verbosity: 0 to 10.", integer, at_least(0), short="v")] = 0
    vmodule: Annotated[
        tuple[tuple[str, int], ...],
        Flag(MISC, "Verbosity of single files: pattern=N, without .py; comma-separated.", levels),
    ] = ()
    logging_format: Annotated[
        str,
        Flag(
            MISC,
            "Format of the log: text or json.",
            check=lambda value: "" if value in {klog.TEXT, klog.JSON} else "must be text or json",
        ),
    ] = klog.TEXT
    log_flush_frequency: Annotated[
        float,
        Flag(MISC, "Has no effect: every line is written at once.", duration, above(0)),
    ] = 5.0
    log_json_info_buffer_size: Annotated[
        str, Flag(MISC, "Has no effect: log lines are written at once.")
    ] = "0"
    log_json_split_stream: Annotated[
        bool, Flag(MISC, "Has no effect: all lines go to standard error.", boolean)
    ] = False
    log_text_info_buffer_size: Annotated[
        str, Flag(MISC, "Has no effect: log lines are written at once.")
    ] = "0"
    log_text_split_stream: Annotated[
        bool, Flag(MISC, "Has no effect: all lines go to standard error.", boolean)
    ] = False
    version: Annotated[
        str,
        Flag(
            MISC,
            "Print the version and exit; raw: with all details of the build.",
            version_wanted,
            bare="true",
        ),
    ] = "false"
    config: Annotated[
        str, Flag(PROREUS, "YAML or JSON file with flags by their names; given flags win.")
    ] = ""
    cloud_config_secret: Annotated[
        str,
        Flag(
            PROREUS,
            "namespace/name/key of a Secret with the cloud's configuration, instead of a file.",
            check=_secret_key,
        ),
    ] = ""
    leader_elect_per_controller: Annotated[
        bool,
        Flag(
            PROREUS,
            "Use a lease for each controller, so that replicas share the controllers.",
            boolean,
        ),
    ] = False
    load_balancer_resync_period: Annotated[
        float,
        Flag(
            PROREUS, "How often load balancers are compared with the cloud.", duration, at_least(1)
        ),
    ] = DEFAULTS.load_balancer_resync_period
    delete_leaks_after: Annotated[
        float,
        Flag(
            PROREUS,
            "Delete load balancers whose Service has been gone this long; 0: only report them.",
            duration,
            at_least(0),
        ),
    ] = DEFAULTS.delete_leaks_after
    status_page: Annotated[
        bool, Flag(PROREUS, "Serve a page that shows the state at /status.", boolean)
    ] = False
    load_balancer_classes: Annotated[
        tuple[str, ...],
        Flag(
            PROREUS,
            "Values of spec.loadBalancerClass that this manager owns; of several clouds "
            "CLOUD=CLASS.",
            names,
        ),
    ] = DEFAULTS.load_balancer_classes
    load_balancer_cloud: Annotated[
        str,
        Flag(
            PROREUS,
            "Of several clouds, that of Services which name none; empty: the first one.",
        ),
    ] = ""
    classless_load_balancers: Annotated[
        bool, Flag(PROREUS, "Own Services without a loadBalancerClass, as Go does.", boolean)
    ] = DEFAULTS.classless_load_balancers
    node_deletion_confirmations: Annotated[
        int,
        Flag(
            PROREUS,
            "How many answers 'no such machine' it takes to delete a Node.",
            integer,
            at_least(1),
        ),
    ] = DEFAULTS.node_deletion_confirmations
    node_deletion_interval: Annotated[
        float,
        Flag(
            PROREUS,
            "Least time between two answers that count for a deletion.",
            duration,
            at_least(0),
        ),
    ] = DEFAULTS.node_deletion_interval
    node_deletion_witnesses: Annotated[
        int,
        Flag(
            PROREUS,
            "Ready nodes asked about in the same call, as witnesses; 0: none.",
            integer,
            at_least(0),
        ),
    ] = DEFAULTS.node_deletion_witnesses
    node_startup_grace: Annotated[
        float,
        Flag(
            PROREUS,
            "Age below which a Node that was never initialised is kept.",
            duration,
            at_least(0),
        ),
    ] = DEFAULTS.node_startup_grace
    node_deletion_breaker: Annotated[
        float,
        Flag(
            PROREUS,
            "Share of nodes; if more look gone in 5 minutes, none is deleted.",
            number,
            at_least(0),
        ),
    ] = DEFAULTS.node_deletion_breaker
    node_deletion_resume: Annotated[
        bool, Flag(PROREUS, "Delete nodes although the breaker holds deletions back.", boolean)
    ] = DEFAULTS.node_deletion_resume
    delete_nodes_by_name: Annotated[
        bool, Flag(PROREUS, "Delete also Nodes without a provider id, looked up by name.", boolean)
    ] = DEFAULTS.delete_nodes_by_name
    node_monitor_grace_period: Annotated[
        float,
        Flag(
            PROREUS,
            "With nodelifecycle: how long a node may be silent before it is unknown.",
            duration,
            at_least(1),
        ),
    ] = DEFAULTS.node_monitor_grace_period
    node_startup_grace_period: Annotated[
        float,
        Flag(
            PROREUS,
            "With nodelifecycle: the same of a node that has never reported.",
            duration,
            at_least(1),
        ),
    ] = DEFAULTS.node_startup_grace_period
    node_eviction_rate: Annotated[
        float,
        Flag(
            PROREUS,
            "With nodelifecycle: how many nodes of a zone get NoExecute taints in a second.",
            number,
            at_least(0),
        ),
    ] = DEFAULTS.node_eviction_rate
    secondary_node_eviction_rate: Annotated[
        float,
        Flag(
            PROREUS,
            "With nodelifecycle: the same in a large zone that is partly disrupted.",
            number,
            at_least(0),
        ),
    ] = DEFAULTS.secondary_node_eviction_rate
    large_cluster_size_threshold: Annotated[
        int,
        Flag(
            PROREUS,
            "With nodelifecycle: number of nodes above which a zone is large.",
            integer,
            at_least(0),
        ),
    ] = DEFAULTS.large_cluster_size_threshold
    unhealthy_zone_threshold: Annotated[
        float,
        Flag(
            PROREUS,
            "With nodelifecycle: share of nodes not Ready from which a zone is disrupted.",
            number,
            at_least(0),
        ),
    ] = DEFAULTS.unhealthy_zone_threshold
    node_out_of_service_taint: Annotated[
        bool,
        Flag(
            PROREUS,
            "Taint nodes out-of-service whose machines the cloud shows as powered off.",
            boolean,
        ),
    ] = DEFAULTS.node_out_of_service_taint
    node_out_of_service_grace: Annotated[
        float,
        Flag(
            PROREUS,
            "How long a node must be silent and powered off before that taint.",
            duration,
            at_least(0),
        ),
    ] = DEFAULTS.node_out_of_service_grace
    provider_flags: Mapping[str, Any] = {}
    """The values of the provider's own flags, by their names."""
    merge_cloud_config: bool = False
    """Whether the keys of the Secret override those of the file, where there are both."""


def problems(options: Options) -> tuple[str, ...]:
    """Report problems of the options as a whole; each problem names its flag."""
    found: list[str] = []
    if not options.cloud_provider:
        found.append("--cloud-provider: must not be empty; name a bundled provider or a plugin")
    is_twice = options.cloud_config and options.cloud_config_secret
    if is_twice and not options.merge_cloud_config:
        found.append("--cloud-config-secret: cannot be together with --cloud-config; drop one")
    if options.leader_elect:
        lease, renew = options.leader_elect_lease_duration, options.leader_elect_renew_deadline
        retry = options.leader_elect_retry_period
        for flag, name, form in (
            ("resource-name", options.leader_elect_resource_name, _SUBDOMAIN),
            ("resource-namespace", options.leader_elect_resource_namespace, _LABEL),
        ):
            if not form.fullmatch(name):
                found.append(f"--leader-elect-{flag}: {name!r} must be a name such as my-lease")
        if lease <= renew:
            found.append(
                f"--leader-elect-lease-duration: {lease:g}s must be longer than "
                f"--leader-elect-renew-deadline ({renew:g}s)"
            )
        if renew <= retry * RETRY_JITTER:
            found.append(
                f"--leader-elect-renew-deadline: {renew:g}s must be longer than {RETRY_JITTER:g} x "
                f"--leader-elect-retry-period ({retry:g}s)"
            )
    else:
        found.extend(
            f"--{flag}: needs --leader-elect; add it, or drop this"
            for flag, is_on in (
                ("enable-leader-migration", options.enable_leader_migration),
                ("leader-elect-per-controller", options.leader_elect_per_controller),
            )
            if is_on
        )
    found.extend(_ssh(options))
    if options.allocate_node_cidrs:
        found.extend(_node_cidrs(options))
    if options.node_out_of_service_taint and not options.node_deletion_witnesses:
        found.append(
            "--node-out-of-service-taint: needs witnesses; give --node-deletion-witnesses 1 or more"
        )
    found.extend(_servers(options))
    return tuple(found)


def _servers(options: Options) -> Iterator[str]:
    """Report wrong ports and certificates."""
    if options.metrics_bind_address != "0":
        port = options.metrics_bind_address.rpartition(":")[2]
        if not port.isdecimal() or not 0 < int(port) <= LAST_PORT:
            yield f"--metrics-bind-address: {options.metrics_bind_address!r} must be host:port or 0"
    if options.webhooks and options.webhook_secure_port == options.secure_port != 0:
        yield f"--webhook-secure-port: {options.secure_port} is --secure-port's; choose another"
    for prefix, cert, key in (
        ("tls", options.tls_cert_file, options.tls_private_key_file),
        ("webhook-tls", options.webhook_tls_cert_file, options.webhook_tls_private_key_file),
    ):
        if cert and not key:
            yield f"--{prefix}-private-key-file: is needed with --{prefix}-cert-file"
        if key and not cert:
            yield f"--{prefix}-cert-file: is needed with --{prefix}-private-key-file"


def _ssh(options: Options) -> Iterator[str]:
    """Return the problems with the flags that give an SSH key to instances; each names its flag."""
    if options.ssh_user and not options.ssh_keyfile:
        yield "--ssh-keyfile: is needed with --ssh-user"
    if options.ssh_keyfile and not options.ssh_user:
        yield "--ssh-user: is needed with --ssh-keyfile"
    is_chosen = any(one.alias == "ssh-keys" for one in select(options.controllers)[0])
    if options.ssh_user and not is_chosen:
        yield "--ssh-user: needs the controller ssh-keys; give --controllers=*,ssh-keys, too"


def _node_cidrs(options: Options) -> tuple[str, ...]:
    _, found = ranges(
        Mode(options.cidr_allocator_type),
        options.cluster_cidr,
        size=options.node_cidr_mask_size,
        size_v4=options.node_cidr_mask_size_ipv4,
        size_v6=options.node_cidr_mask_size_ipv6,
    )
    return found
