"""A router with a real FRR, two nodes with theirs, and a client behind the router.

    client ── clients0 ┤router├ nodes0 (bridge) ─┬─ one
                                                 └─ two

The nodes have the load balancers' addresses, as kube-proxy gives them, and answer there.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from proreus.providers.local.addresses import Pool, parse_range
from proreus.testing.waiting import block_until

from .frr import FRR
from .traffic import NODES, PROGRAM, Machine, addresses, cable, forwarding, run

WEB, SHOP, WEB6 = "192.0.2.65", "192.0.2.66", "2001:db8::101"
CLIENT, CLIENT6 = "10.8.1.2", "fd00:8::1:2"
POOLS = (Pool(name="web", ranges=(parse_range("192.0.2.64/27"), parse_range("2001:db8::100/120"))),)
PATIENCE = 60.0
ROUTER = "10.9.0.1"


class Fabric:
    """The machines and their FRRs."""

    def __init__(self, stack: ExitStack, rights: Mapping[str, Sequence[str]] = {}) -> None:
        self.router = Machine(stack, "router")
        self.client = Machine(stack, "client")
        self.nodes = {name: Machine(stack, name) for name in NODES}
        self._lay_cables()
        for name, node in self.nodes.items():
            program = node.start(stack, sys.executable, str(PROGRAM), name, WEB, SHOP, WEB6)
            assert program.answers.readline() == "ready\n"
        self.frrs = {name: FRR(stack, node, rights=rights) for name, node in self.nodes.items()}
        self.routing = FRR(stack, self.router, is_router=True)

    def _lay_cables(self) -> None:
        with self.router.inside():
            forwarding()
            Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
            # By addresses and ports, so that connections of one client are spread.
            Path("/proc/sys/net/ipv4/fib_multipath_hash_policy").write_text("1")
            Path("/proc/sys/net/ipv6/fib_multipath_hash_policy").write_text("1")
            run("ip", "link", "set", "lo", "up")
            run("ip", "link", "add", "nodes0", "type", "bridge")
            addresses("nodes0", "10.9.0.1/16", "fd00:9::1/64")
            for name, node in self.nodes.items():
                cable(f"to-{name}", node)
                run("ip", "link", "set", f"to-{name}", "master", "nodes0", "up")
            cable("clients0", self.client)
            addresses("clients0", "10.8.1.1/16", "fd00:8::1:1/64")
        for name, node in self.nodes.items():
            with node.inside():
                Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
                run("ip", "link", "set", "lo", "up")
                addresses("eth0", NODES[name][0] + "/16", NODES[name][1] + "/64")
                addresses("lo", WEB + "/32", SHOP + "/32", WEB6 + "/128")
                run("ip", "route", "add", "default", "via", "10.9.0.1")
                run("ip", "-6", "route", "add", "default", "via", "fd00:9::1")
        with self.client.inside():
            addresses("eth0", CLIENT + "/16", CLIENT6 + "/64")
            run("ip", "route", "add", "default", "via", "10.8.1.1")
            run("ip", "-6", "route", "add", "default", "via", "fd00:8::1:1")

    def route(
        self, *, as_: int = 64513, of: str = "10.9.0", neighbor: tuple[str, ...] = ()
    ) -> None:
        """Configure the router anew, as its operator would, with a neighbor for each node."""
        shown = self.routing.configuration()
        old = [line for line in shown.splitlines() if line.startswith("router bgp ")]
        lines = [f"router bgp {as_}", "bgp router-id 10.9.0.1", "no bgp ebgp-requires-policy",
                 "no bgp default ipv4-unicast", "bgp bestpath as-path multipath-relax"]  # fmt: skip
        hosts = [one for both in NODES.values() for one in both if one.startswith(of)]
        for host in hosts:
            lines += [f"neighbor {host} remote-as 64512", f"neighbor {host} timers 3 9",
                      f"neighbor {host} timers connect 1"]  # fmt: skip
            lines += [f"neighbor {host} {text}" for text in neighbor]
        for family in ("ipv4", "ipv6"):
            lines += [f"address-family {family} unicast", "maximum-paths 8", "maximum-paths ibgp 8"]
            lines += [f"neighbor {host} activate" for host in hosts]
            lines += ["exit-address-family"]
        self.routing.commands(
            "bgpd", "configure terminal", *(f"no {one}" for one in old), *lines, "end"
        )

    def hops(self, address: str) -> set[str]:
        """The nodes to which the router's kernel sends packets for the address."""
        owners = {one: name for name, both in NODES.items() for one in both}
        version = "-6" if ":" in address else "-4"
        found: list[dict[str, Any]] = json.loads(
            self.router.run("ip", "-j", version, "route", "show", address)
        )
        hops = [hop for one in found for hop in one.get("nexthops", [one])]
        return {
            self._owner(hop["gateway"], owners)
            for hop in hops
            if "dead" not in hop.get("flags", [])
        }

    def _owner(self, gateway: str, owners: dict[str, str]) -> str:
        """The node by its address; a next hop of IPv6 may be link-local."""
        if gateway in owners:
            return owners[gateway]
        for name, node in self.nodes.items():
            shown = json.loads(node.run("ip", "-j", "-6", "addr", "show", "eth0"))
            if gateway in {one["local"] for one in shown[0]["addr_info"]}:
                return name
        return gateway

    def learned(self, address: str) -> list[dict[str, Any]]:
        """What the router has learned of the address, a path each."""
        version = ip_address(address).version
        shown = self.routing.commands("bgpd", f"show bgp ipv{version} unicast {address} json")
        found: list[dict[str, Any]] = json.loads(shown).get("paths", [])
        return found

    def sent_to(self, address: str, *nodes: str) -> None:
        """Wait until the router sends packets for the address to these nodes."""
        block_until(
            f"{address} is sent to {nodes}", lambda: self.hops(address) == set(nodes), PATIENCE
        )

    def answers(self, address: str, connections: int = 1) -> Counter[str]:
        """Who answers the client, and that they see its own address."""
        found: Counter[str] = Counter()
        for _ in range(connections):
            with self.client.connect(address) as line:
                node, client = line.ask()
                assert client in {CLIENT, CLIENT6}
                found[node] += 1
        return found
