"""Fill a manager with what is there before Kubernetes: the system's profiles, and a network."""

import ipaddress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .server import Emulator

GATEWAY: Final = "/infra/tier-1s/t1"
"""The tier-1 gateway of the cluster."""
POOL: Final = "vips"
"""The id of the IP pool; its name is `VIP pool`."""
SYSTEM: Final = {
    "/infra/lb-app-profiles/default-tcp-lb-app-profile": "LBFastTcpProfile",
    "/infra/lb-app-profiles/default-udp-lb-app-profile": "LBFastUdpProfile",
    "/infra/lb-app-profiles/default-http-lb-app-profile": "LBHttpProfile",
    "/infra/lb-monitor-profiles/default-tcp-lb-monitor": "LBTcpMonitorProfile",
    "/infra/lb-monitor-profiles/default-icmp-lb-monitor": "LBIcmpMonitorProfile",
    "/infra/lb-monitor-profiles/default-http-lb-monitor": "LBHttpMonitorProfile",
    "/infra/lb-persistence-profiles/default-source-ip-lb-persistence-profile": "LBSourceIpPersistenceProfile",
    "/infra/lb-persistence-profiles/default-cookie-lb-persistence-profile": "LBCookiePersistenceProfile",
    "/infra/domains/default": "Domain",
}
"""What every manager has of its own."""


def seed(emulator: "Emulator") -> None:
    """Make what a manager has, a tier-1 gateway and an IP pool with ten addresses."""
    for path, kind in SYSTEM.items():
        emulator.put(path, resource_type=kind)
        emulator.store.objects[path] |= {"_system_owned": True, "_create_user": "system"}
    advertised = ["TIER1_LB_VIP", "TIER1_STATIC_ROUTES"]
    emulator.put(GATEWAY, display_name="cluster", route_advertisement_types=advertised)
    add_pool(emulator, POOL, "VIP pool", addresses="10.20.30.1-10.20.30.10")


def add_pool(emulator: "Emulator", id_: str, name: str, *, addresses: str, **more: Any) -> None:
    """Make an IP pool with a range of addresses, such as `10.20.30.1-10.20.30.10`."""
    first, _, last = addresses.partition("-")
    network = ipaddress.ip_network((first, 24 if "." in first else 64), strict=False)
    emulator.put(f"/infra/ip-pools/{id_}", display_name=name, **more)
    emulator.put(
        f"/infra/ip-pools/{id_}/ip-subnets/subnet",
        resource_type="IpAddressPoolStaticSubnet",
        cidr=str(network),
        allocation_ranges=[{"start": first, "end": last or first}],
    )
