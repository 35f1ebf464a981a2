"""A gateway, two nodes and a client as network namespaces, joined by cables.

    client ── clients0 ┤gateway├ nodes0 (bridge) ─┬─ one
                                                  └─ two

The test's thread is in the gateway. Namespaces have no names: nobody else sees them, and they are
gone with the processes that live in them.
"""

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import pytest

from proreus.testing.waiting import block_until

from .local_namespace import CLONE_NEWNET

NODES = {"one": ("10.9.0.11", "fd00:9::11"), "two": ("10.9.0.12", "fd00:9::12")}
VIP, OTHER, VIP6 = "10.8.0.1", "10.8.0.2", "fd00:8::1"
CLIENT, STRANGER, CLIENT6 = "10.8.1.2", "10.8.1.3", "fd00:8::1:2"
VIP_HERE, VIP6_HERE = "10.9.9.9", "fd00:9::99"
"""Addresses in the nodes' own network."""
PATIENCE = 60.0
PROGRAM = Path(__file__).with_name("traffic_node.py")

if not all(shutil.which(program) for program in ("nft", "ip", "nsenter", "unshare")):
    pytest.skip("nft, ip, nsenter or unshare is missing", allow_module_level=True)


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Program(NamedTuple):
    """A process by its pipes."""

    orders: IO[str]
    answers: IO[str]


class Machine:
    """A process in a network namespace of its own."""

    def __init__(self, stack: ExitStack, name: str) -> None:
        self.name = name
        holder = stack.enter_context(
            subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
        )
        assert holder.stdin is not None
        stack.callback(holder.stdin.close)
        self.pid = holder.pid
        mine = Path("/proc/thread-self/ns/net").readlink()
        theirs = Path(f"/proc/{self.pid}/ns/net")
        block_until("the namespace is there", lambda: theirs.readlink() != mine, pause=0.01)

    def into(self, *command: str) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--net", *command]

    def run(self, *command: str) -> str:
        return run(*self.into(*command))

    def start(self, stack: ExitStack, *command: str) -> "Program":
        process = stack.enter_context(
            subprocess.Popen(
                self.into(*command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        assert process.stdin is not None
        assert process.stdout is not None
        stack.callback(process.stdin.close)
        return Program(process.stdin, process.stdout)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """This thread in the machine's network, for sockets that stay there."""
        with into_network(f"/proc/{self.pid}/ns/net"):
            yield

    def connect(
        self,
        address: str,
        port: int = 80,
        *,
        kind: int = socket.SOCK_STREAM,
        source: str = "",
        seconds: float = PATIENCE,
    ) -> "Line":
        with self.inside():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            line = socket.socket(family, kind)
            line.settimeout(seconds if kind == socket.SOCK_STREAM else 1.0)
            try:
                if source:
                    line.bind((source, 0))
                line.connect((address, port))
            except OSError:
                line.close()
                raise
        return Line(line)


class Line:
    """A connection, or UDP from one port."""

    def __init__(self, line: socket.socket) -> None:
        self.socket = line

    def ask(self) -> tuple[str, str]:
        """The node that answers, and the client's address that it saw."""
        for _ in range(30):
            self.socket.send(b"who\n")
            with contextlib.suppress(TimeoutError):  # datagrams may get lost
                node, client = self.socket.recv(200).decode().split()
                return node, client
        raise TimeoutError("nobody answers")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@contextmanager
def into_network(path: str) -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(there, CLONE_NEWNET):
            pytest.skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            if libc.setns(before, CLONE_NEWNET):
                os._exit(1)  # everything that follows would run in the wrong network
    finally:
        os.close(before)
        os.close(there)


class Segment:
    """Everybody in one network: gateways a and b, two nodes and a client, who are neighbours.

    Nodes answer the client directly, past the gateway.
    """

    def __init__(self, stack: ExitStack) -> None:
        if os.geteuid():
            pytest.skip("network namespaces need root")
        switch = Machine(stack, "switch")
        with switch.inside():
            run("ip", "link", "add", "segment", "type", "bridge")
            run("ip", "link", "set", "segment", "up")
        self.switch = switch
        self.gateways = {name: Machine(stack, name) for name in ("a", "b")}
        self.client = Machine(stack, "client")
        self.nodes = {name: Machine(stack, name) for name in NODES}
        own = {"a": ("10.9.0.1", "fd00:9::1"), "b": ("10.9.0.2", "fd00:9::2"),
               "client": ("10.9.1.2", "fd00:9::1:2"), **NODES}  # fmt: skip
        for machine in (*self.gateways.values(), self.client, *self.nodes.values()):
            with switch.inside():
                cable(f"to-{machine.name}", machine)
                run("ip", "link", "set", f"to-{machine.name}", "master", "segment", "up")
            with machine.inside():
                run("ip", "link", "set", "lo", "up")
                addresses("eth0", own[machine.name][0] + "/16", own[machine.name][1] + "/64")
        for machine in self.gateways.values():
            with machine.inside():
                forwarding()
        for name, node in self.nodes.items():
            with node.inside():
                # kube-proxy's addresses are nobody's, so a node never speaks of them in ARP.
                Path("/proc/sys/net/ipv4/conf/all/arp_ignore").write_text("1")
                Path("/proc/sys/net/ipv4/conf/all/arp_announce").write_text("2")
                addresses("lo", VIP_HERE + "/32", VIP6_HERE + "/128")
            program = node.start(stack, sys.executable, str(PROGRAM), name, VIP_HERE, VIP6_HERE)
            assert program.answers.readline() == "ready\n"

    def unplug(self, name: str) -> None:
        self.switch.run("ip", "link", "set", f"to-{name}", "down")

    def plug(self, name: str) -> None:
        self.switch.run("ip", "link", "set", f"to-{name}", "up")

    def answers(self, address: str) -> str:
        """The node that answers the client there."""
        with self.client.connect(address) as line:
            return line.ask()[0]

    def mac_of(self, name: str) -> str:
        with self.gateways[name].inside():
            return str(json.loads(run("ip", "-j", "link", "show", "eth0"))[0]["address"])

    def neighbour(self) -> str:
        """Where the client takes the address to be."""
        with self.client.inside():
            found = json.loads(run("ip", "-j", "neigh", "show", VIP_HERE))
        return str(found[0].get("lladdr", "")) if found else ""


class Lab:
    """The machines; this thread is in `gateway`."""

    def __init__(self, stack: ExitStack) -> None:
        if os.geteuid():
            pytest.skip("network namespaces need root")
        self.gateway = Machine(stack, "gateway")
        self.client = Machine(stack, "client")
        self.nodes = {name: Machine(stack, name) for name in NODES}
        self.programs = {}
        self.lay_cables()
        for name, node in self.nodes.items():
            program = node.start(stack, sys.executable, str(PROGRAM), name, VIP, OTHER, VIP6)
            assert program.answers.readline() == "ready\n"
            self.programs[name] = program
        stack.enter_context(self.gateway.inside())

    def lay_cables(self) -> None:
        with self.gateway.inside():
            forwarding()
            # Otherwise the routes of link-local addresses come a second or two after their links.
            Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
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
                run("ip", "link", "set", "lo", "up")
                addresses("eth0", NODES[name][0] + "/16", NODES[name][1] + "/64")
                addresses("lo", VIP + "/32", OTHER + "/32", VIP6 + "/128")
                run("ip", "route", "add", "default", "via", "10.9.0.1")
                run("ip", "-6", "route", "add", "default", "via", "fd00:9::1")
        with self.client.inside():
            addresses("eth0", CLIENT + "/16", STRANGER + "/16", CLIENT6 + "/64")

    def check_says(self, node: str, status: str) -> None:
        program = self.programs[node]
        program.orders.write(status + "\n")
        program.orders.flush()
        assert program.answers.readline() == "done\n"

    def unplug(self, node: str) -> None:
        run("ip", "link", "set", f"to-{node}", "down")

    def plug(self, node: str) -> None:
        run("ip", "link", "set", f"to-{node}", "up")

    def table(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(run("nft", "-j", "list", "ruleset"))["nftables"]
        return found[1:]


def forwarding() -> None:
    for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        Path("/proc/sys/net", setting).write_text("1")


def cable(here: str, machine: Machine) -> None:
    run(
        "ip", "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid)
    )


def addresses(interface: str, *every: str) -> None:
    run("ip", "link", "set", interface, "up")
    for one in every:
        run("ip", "addr", "add", one, "dev", interface, *(["nodad"] if ":" in one else []))
