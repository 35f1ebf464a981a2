"""Two gateways of the provider `local` that share addresses, by real keepalived and real ARP."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from proreus.providers.local.gateways.keepalived import missing
from proreus.testing.waiting import block_until

from .traffic import VIP_HERE, Machine, Segment

if missing():
    pytest.skip(f"missing: {', '.join(missing())}", allow_module_level=True)

PROGRAM = Path(__file__).with_name("gateway_program.py")
ADDRESSES = [VIP_HERE, *(f"10.9.9.{number}" for number in range(20, 31))]


class Gateways:
    """Gateways a and b in one network with nodes and a client; a leads."""

    def __init__(self, stack: ExitStack, board: Path) -> None:
        self.segment = Segment(stack)
        self.board = board
        self._stack = stack
        self.processes = {name: self.started(name) for name in ("a", "b")}
        self.say("a", "lead", "leads")

    def started(self, name: str) -> "subprocess.Popen[str]":
        machine = self.segment.gateways[name]
        command = machine.into(sys.executable, str(PROGRAM), name, str(self.board), *ADDRESSES)
        process = self._stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        self._stack.callback(process.stdin.close)  # type: ignore[union-attr]
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def say(self, name: str, order: str, answer: str) -> None:
        process = self.processes[name]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(order + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == answer + "\n"

    def announced(self, name: str) -> set[str]:
        """The addresses for which the gateway answers ARP."""
        said = self.segment.gateways[name].run("ip", "-j", "neigh", "show", "proxy")
        return {one["dst"] for one in json.loads(said or "[]")}

    def shares(self, name: str) -> set[str]:
        """The addresses by which VRRP gives the gateway shares of the others."""
        said = self.segment.gateways[name].run("ip", "-j", "addr", "show", "dev", "lo")
        return {one["local"] for each in json.loads(said) for one in each["addr_info"]}

    def are_shared(self) -> bool:
        """Whether each address has one gateway, and each gateway an address."""
        a, b = self.announced("a"), self.announced("b")
        return bool(a) and bool(b) and not a & b and a | b == set(ADDRESSES)

    def all_at(self, name: str) -> bool:
        return self.announced(name) == set(ADDRESSES)

    def answers(self, address: str) -> bool:
        """Whether a node answers the client."""
        try:
            with self.segment.client.connect(address, seconds=2.0) as line:
                return line.ask()[0] in {"one", "two"}
        except OSError:
            return False

    def firewall(self, machine: Machine, *words: str) -> None:
        machine.run("nft", "add", "table", "inet", "wall")
        chain = "{ type filter hook input priority 0 ; }"
        machine.run("nft", "add", "chain", "inet", "wall", "in", chain)
        machine.run("nft", "add", "rule", "inet", "wall", "in", *words, "drop")


def keepalived_in(machine: Machine) -> list[int]:
    """The processes of keepalived in the machine's network namespace."""
    mine = Path(f"/proc/{machine.pid}/ns/net").readlink()
    every = [one for one in Path("/proc").iterdir() if one.name.isdecimal()]
    found = []
    for one in every:
        try:
            if (one / "comm").read_text() == "keepalived\n" and (one / "ns/net").readlink() == mine:
                found.append(int(one.name))
        except OSError:  # it has just ended
            continue
    return found


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[Gateways]:
    with ExitStack() as stack:
        found = Gateways(stack, tmp_path)
        block_until("both have a share", found.are_shared)
        yield found


def neighbour(gateways: Gateways, address: str) -> str:
    """Where the client takes an address to be."""
    said = gateways.segment.client.run("ip", "-j", "neigh", "show", address)
    found = json.loads(said or "[]")
    return str(found[0].get("lladdr", "")) if found else ""


@pytest.mark.long
def test_addresses_move_to_the_other_gateway_and_back(gateways: Gateways) -> None:
    owner = "a" if VIP_HERE in gateways.announced("a") else "b"
    other = "b" if owner == "a" else "a"
    block_until("an answer", lambda: gateways.answers(VIP_HERE))
    segment = gateways.segment
    # On a busy machine the other one has the share for a moment, and the client hears of it.
    block_until("the client knows", lambda: neighbour(gateways, VIP_HERE) == segment.mac_of(owner))
    with segment.client.connect(VIP_HERE) as line:
        before = line.ask()[0]
        segment.unplug(owner)
        block_until("the other one has all", lambda: gateways.all_at(other))
        block_until(
            "the client knows", lambda: neighbour(gateways, VIP_HERE) == segment.mac_of(other)
        )
        assert line.ask()[0] == before, "the connection has broken"
        assert gateways.answers(VIP_HERE)
        segment.plug(owner)
        block_until("both have a share again", gateways.are_shared)
        block_until(
            "the client knows", lambda: neighbour(gateways, VIP_HERE) == segment.mac_of(owner)
        )
        assert line.ask()[0] == before, "the connection has broken"


def test_a_manager_that_is_killed_leaves_its_share_to_the_other(gateways: Gateways) -> None:
    gateways.processes["a"].kill()
    gateways.processes["a"].wait()
    block_until("the other one has all", lambda: gateways.all_at("b"))
    block_until("it answers no more", lambda: gateways.announced("a") == set())
    block_until("an answer", lambda: gateways.answers(VIP_HERE))
    gateways.processes["a"] = gateways.started("a")
    block_until("both have a share again", gateways.are_shared)


@pytest.mark.long
@pytest.mark.parametrize("name", ["a", "b"], ids=["the leader", "a standby"])
def test_a_manager_that_ends_leaves_its_share_to_the_other(gateways: Gateways, name: str) -> None:
    process = gateways.processes[name]
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == 0
    assert gateways.announced(name) == set()
    block_until("the other one has all", lambda: gateways.all_at("b" if name == "a" else "a"))


@pytest.mark.long
def test_a_command_that_only_reads_takes_no_share(gateways: Gateways) -> None:
    """It is run where the manager has ended, and left its load balancers in the kernel."""
    process = gateways.processes["b"]
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == 0
    block_until("the other one has all", lambda: gateways.all_at("a"))
    machine = gateways.segment.gateways["b"]
    command = machine.into(sys.executable, str(PROGRAM), "b", "-", *ADDRESSES)
    shares = gateways.shares("a")
    with subprocess.Popen(command) as looking:
        while looking.poll() is None:
            assert keepalived_in(machine) == []
            assert gateways.shares("a") == shares
            time.sleep(0.1)
    assert looking.returncode == 0


@pytest.mark.long
def test_a_gateway_that_is_alone_goes_on_without_its_manager(gateways: Gateways) -> None:
    gateways.processes["b"].kill()
    gateways.processes["b"].wait()
    (gateways.board / "b").unlink()
    block_until("the other one has all", lambda: gateways.all_at("a"))
    time.sleep(1.0)  # until it knows that it is alone
    gateways.processes["a"].kill()
    gateways.processes["a"].wait()
    time.sleep(1.0)
    assert gateways.all_at("a")
    assert gateways.answers(VIP_HERE)


@pytest.mark.long
def test_a_gateway_that_no_node_answers_has_no_share(gateways: Gateways) -> None:
    machine = gateways.segment.gateways["a"]
    gateways.firewall(machine, "ip", "saddr", "10.9.0.11-10.9.0.12")
    block_until("the other one has all", lambda: gateways.all_at("b"))
    machine.run("nft", "delete", "table", "inet", "wall")
    block_until("both have a share again", gateways.are_shared)


@pytest.mark.long
def test_a_keepalived_that_dies_is_started_again(gateways: Gateways) -> None:
    machine = gateways.segment.gateways["a"]
    found = keepalived_in(machine)
    assert found
    os.kill(min(found), signal.SIGKILL)
    block_until("the other one has all", lambda: gateways.all_at("b"))
    block_until("both have a share again", gateways.are_shared)


@pytest.mark.long
def test_gateways_that_do_not_hear_one_another_agree_by_the_board(gateways: Gateways) -> None:
    shared = {name: gateways.announced(name) for name in ("a", "b")}
    for machine in gateways.segment.gateways.values():
        gateways.firewall(machine, "ip", "protocol", "vrrp")

    def is_split() -> bool:
        notes = [json.loads((gateways.board / name).read_text()) for name in ("a", "b")]
        return all(len(note["claims"]) == 64 for note in notes)

    block_until("VRRP gives both everything", is_split)
    block_until("each address has one gateway", gateways.are_shared)
    assert {name: gateways.announced(name) for name in ("a", "b")} == shared
    gateways.processes["a"].kill()
    gateways.processes["a"].wait()
    block_until("the other one has all", lambda: gateways.all_at("b"))
