"""What the SDK does not say of fields: the notes of the vendor's reference of the REST API.

By type and field: whether it is required, its default, its least and greatest value or number of
items, how long it may be.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

LARGEST: Final = 2**31 - 1
READ_ONLY: Final = frozenset(
    (
        "_create_time", "_create_user", "_last_modified_time", "_last_modified_user", "_protection",
        "_schema", "_system_owned", "_revision", "id", "marked_for_delete", "origin_site_id",
        "overridden", "owner_id", "parent_path", "path", "realization_id", "relative_path",
        "remote_path", "unique_id", "pool_usage", "state", "allocated_ip",
    )
)  # fmt: skip
"""What the manager writes; in a request it is ignored."""
TAGS: Final = 30


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of a field.

    Attributes:
        required: It must be given.
        default: What it is otherwise.
        least: Its least value, or number of items.
        most: Its greatest value, or number of items.
        longest: How many characters it may have.
    """

    required: bool = False
    default: Any = None
    least: int | None = None
    most: int | None = None
    longest: int | None = None


REQUIRED: Final = Limit(required=True)
NO: Final = Limit(default=False)
YES: Final = Limit(default=True)
_COUNT: Final = Limit(least=1, most=LARGEST)
_ACTIVE_MONITOR: Final = {
    "fall_count": Limit(default=3, least=1, most=LARGEST),
    "rise_count": Limit(default=3, least=1, most=LARGEST),
    "interval": Limit(default=5, least=1, most=LARGEST),
    "timeout": Limit(default=5, least=1, most=LARGEST),
    "monitor_port": Limit(least=0, most=65535),
}
_HTTP_MONITOR: Final = {
    **_ACTIVE_MONITOR,
    "request_method": Limit(default="GET"),
    "request_url": Limit(default="/"),
    "request_version": Limit(default="HTTP_VERSION_1_1"),
    "response_status_codes": Limit(most=64),
}
_PERSISTENCE: Final = {"persistence_shared": NO, "ha_persistence_mirroring_enabled": NO}

LIMITS: Final[Mapping[str, Mapping[str, Limit]]] = {
    "PolicyConfigResource": {
        "display_name": Limit(longest=255),
        "description": Limit(longest=1024),
        "tags": Limit(most=TAGS),
    },
    "Tag": {"scope": Limit(default="", longest=128), "tag": Limit(default="", longest=256)},
    "LBService": {
        "enabled": YES, "size": Limit(default="SMALL"), "error_log_level": Limit(default="INFO"),
        "access_log_enabled": NO, "relax_scale_validation": NO,
    },
    "LBVirtualServer": {
        "application_profile_path": REQUIRED, "ip_address": REQUIRED,
        "ports": Limit(required=True, least=1), "default_pool_member_ports": Limit(most=14),
        "enabled": YES, "access_log_enabled": NO, "log_significant_event_only": NO,
        "max_concurrent_connections": _COUNT, "max_new_connection_rate": _COUNT,
    },
    "LBAccessListControl": {"action": REQUIRED, "group_path": REQUIRED, "enabled": NO},
    "LBPool": {
        "algorithm": Limit(default="ROUND_ROBIN"),
        "min_active_members": Limit(default=1, least=1, most=LARGEST),
        "tcp_multiplexing_enabled": NO,
        "tcp_multiplexing_number": Limit(default=6, least=0, most=LARGEST),
    },
    "LBPoolMember": {
        "ip_address": REQUIRED, "admin_state": Limit(default="ENABLED"), "backup_member": NO,
        "weight": Limit(default=1, least=1, most=256), "max_concurrent_connections": _COUNT,
    },
    "LBPoolMemberGroup": {
        "group_path": REQUIRED, "port": Limit(least=1, most=65535),
        "max_ip_list_size": Limit(least=0, most=LARGEST),
    },
    "LBSnatIpPool": {"ip_addresses": Limit(required=True, least=1, most=64)},
    "LBSnatIpElement": {"ip_address": REQUIRED},
    "LBTcpMonitorProfile": _ACTIVE_MONITOR,
    "LBUdpMonitorProfile": {**_ACTIVE_MONITOR, "send": REQUIRED, "receive": REQUIRED},
    "LBIcmpMonitorProfile": {**_ACTIVE_MONITOR, "data_length": Limit(default=56, least=0, most=65507)},
    "LBHttpMonitorProfile": _HTTP_MONITOR,
    "LBHttpsMonitorProfile": _HTTP_MONITOR,
    "LBPassiveMonitorProfile": {
        "max_fails": Limit(default=5, least=1, most=LARGEST),
        "timeout": Limit(default=5, least=1, most=LARGEST),
    },
    "LBFastTcpProfile": {
        "close_timeout": Limit(default=8, least=1, most=60),
        "idle_timeout": Limit(default=1800, least=1, most=LARGEST),
        "ha_flow_mirroring_enabled": NO,
    },
    "LBFastUdpProfile": {
        "idle_timeout": Limit(default=300, least=1, most=LARGEST), "flow_mirroring_enabled": NO,
    },
    "LBSourceIpPersistenceProfile": {
        **_PERSISTENCE, "purge": Limit(default="FULL"),
        "timeout": Limit(default=300, least=1, most=LARGEST),
    },
    "LBCookiePersistenceProfile": {
        "persistence_shared": NO, "cookie_name": Limit(default="NSXLB"),
        "cookie_mode": Limit(default="INSERT"), "cookie_fallback": YES, "cookie_garble": YES,
    },
    "LBGenericPersistenceProfile": {
        **_PERSISTENCE, "timeout": Limit(default=300, least=1, most=LARGEST),
    },
    "IpAddressPool": {
        "check_overlap_with_existing_pools": NO, "ip_release_delay": Limit(least=0, most=LARGEST),
    },
    "IpAddressPoolStaticSubnet": {
        "cidr": REQUIRED, "allocation_ranges": Limit(required=True, least=1),
        "dns_nameservers": Limit(most=3),
    },
    "IpPoolRange": {"start": REQUIRED, "end": REQUIRED},
    "StaticRoutes": {
        "network": REQUIRED, "next_hops": Limit(required=True, least=1), "enabled_on_secondary": NO,
    },
    "RouterNexthop": {"admin_distance": Limit(default=1, least=1, most=255)},
    "Tier1": {
        "failover_mode": Limit(default="NON_PREEMPTIVE"), "enable_standby_relocation": NO,
        "disable_firewall": NO, "pool_allocation": Limit(default="ROUTING"),
    },
    "IPAddressExpression": {"ip_addresses": Limit(required=True, least=1, most=4000)},
    "PathExpression": {"paths": Limit(required=True, least=1)},
    "Condition": {
        "key": REQUIRED, "member_type": REQUIRED, "operator": REQUIRED, "value": REQUIRED,
    },
    "ConjunctionOperator": {"conjunction_operator": REQUIRED},
}  # fmt: skip

SCALE: Final[Mapping[str, int]] = {"SMALL": 20, "MEDIUM": 100, "LARGE": 1000, "XLARGE": 2000}
"""Virtual servers of a load balancer service by size, in the vendor's table of maximums."""
