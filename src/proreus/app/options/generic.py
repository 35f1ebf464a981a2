"""Define the flags of the process itself: the API server, election, debugging."""

from typing import Annotated

import msgspec

from proreus.app.flag_values import at_least, boolean, duration, gates, integer, names, number
from proreus.app.flags import Flag

GENERIC = "generic"
ELECTION = "leader election"
MIGRATION = "leader migration"
DEBUGGING = "debugging"

CONTENT_TYPES = frozenset(
    {"application/json", "application/vnd.kubernetes.protobuf", "application/cbor"}
)


def _content_type(value: str) -> str:
    return (
        ""
        if value in CONTENT_TYPES | {""}
        else f"must be one of {', '.join(sorted(CONTENT_TYPES))}"
    )


class GenericOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of API access, leader election and debugging."""

    kubeconfig: Annotated[
        str, Flag(GENERIC, "Kubeconfig file for the API server; without it, in-cluster.")
    ] = ""
    master: Annotated[str, Flag(GENERIC, "URL of the API server, instead of the kubeconfig's.")] = (
        ""
    )
    kube_api_qps: Annotated[
        float,
        Flag(GENERIC, "Requests to the API server a second; 0: no limit.", number, at_least(0)),
    ] = 0.0
    kube_api_burst: Annotated[
        int,
        Flag(
            GENERIC,
            "Requests to the API server that may go at once, above the rate.",
            integer,
            at_least(0),
        ),
    ] = 0
    kube_api_content_type: Annotated[
        str,
        Flag(
            GENERIC,
            "Has no effect: requests to the API server use JSON.",
            check=_content_type,
        ),
    ] = "application/vnd.kubernetes.protobuf"
    min_resync_period: Annotated[
        float,
        Flag(
            GENERIC,
            "Has no effect: nodes, routes and load balancers have shorter periods of their own.",
            duration,
            at_least(0),
        ),
    ] = 43200.0
    controller_start_interval: Annotated[
        float,
        Flag(GENERIC, "Pause between the starts of two controllers.", duration, at_least(0)),
    ] = 0.0
    controllers: Annotated[
        tuple[str, ...],
        Flag(
            GENERIC,
            "Controllers to run: '*' is all that are not opt-in, 'name' adds one, '-name' "
            "removes it.",
            names,
        ),
    ] = ("*",)
    feature_gates: Annotated[
        tuple[tuple[str, bool], ...],
        Flag(
            GENERIC,
            "Has no effect: there are no feature gates. Name=true or false; comma-separated.",
            gates,
        ),
    ] = ()
    leader_elect: Annotated[
        bool, Flag(ELECTION, "Work only while holding the lease; needed with replicas.", boolean)
    ] = True
    leader_elect_lease_duration: Annotated[
        float,
        Flag(ELECTION, "How long a lease is valid without being renewed.", duration, at_least(1)),
    ] = 15.0
    leader_elect_renew_deadline: Annotated[
        float,
        Flag(
            ELECTION,
            "Time after which a leader ends that cannot renew its lease.",
            duration,
            at_least(1),
        ),
    ] = 10.0
    leader_elect_retry_period: Annotated[
        float,
        Flag(ELECTION, "Pause between tries to acquire or renew a lease.", duration, at_least(0.1)),
    ] = 2.0
    leader_elect_resource_lock: Annotated[
        str,
        Flag(
            ELECTION,
            "Kind of the lock object; only 'leases'.",
            check=lambda value: "" if value == "leases" else "must be leases",
        ),
    ] = "leases"
    leader_elect_resource_name: Annotated[str, Flag(ELECTION, "Name of the lease.")] = (
        "cloud-controller-manager"
    )
    leader_elect_resource_namespace: Annotated[str, Flag(ELECTION, "Namespace of the lease.")] = (
        "kube-system"
    )
    enable_leader_migration: Annotated[
        bool,
        Flag(
            MIGRATION, "Share controllers with kube-controller-manager by a second lease.", boolean
        ),
    ] = False
    leader_migration_config: Annotated[
        str, Flag(MIGRATION, "File with a LeaderMigrationConfiguration; else Go's default one.")
    ] = ""
    profiling: Annotated[
        bool, Flag(DEBUGGING, "Serve /debug/pprof/ and /debug/flags/v on the secure port.", boolean)
    ] = True
    contention_profiling: Annotated[
        bool,
        Flag(DEBUGGING, "Has no effect: one event loop holds no locks to profile.", boolean),
    ] = False
