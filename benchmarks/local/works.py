"""The pieces of work: each gives lines for a table."""

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator

from benchmarks.local import probe
from benchmarks.local.lab import (
    NEAR,
    PATIENCE,
    ClientResults,
    Lab,
    Line,
    asking,
    node,
    service,
    together,
)
from labs.cluster.cluster import CLIENT
from labs.cluster.gateways import holder, leader
from labs.cluster.network import IPV4
from proreus.testing.waiting import block_until

_SERVER = "servers"
_ROUNDS = 5
_FIRST_ANSWERS = 10
_UPDATES = 5
_RESTARTS = 3
_EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


def first_answer(lab: Lab) -> Iterator[Line]:
    """From the creation of a Service to the first answer by its address."""
    lab.deploy(_SERVER)
    taken = []
    kubectl = lab.cluster.programs.path("kubectl")
    for number in range(_FIRST_ANSWERS):
        name = f"first-{number}"
        address = f"{IPV4.load_balancers.rpartition('.')[0]}.{100 + number}"
        body = json.dumps(service(name, _SERVER, policy="Cluster", address=address))
        # It waits for its input, so its own start does not count.
        create = subprocess.Popen(
            lab.gateway.command(
                *(
                    kubectl,
                    f"--kubeconfig={lab.cluster.plane.kubeconfig}",
                    "create",
                    "--filename=-",
                ),
                "--raw=/api/v1/namespaces/default/services",
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        with asking(lab, address) as client:
            begun = time.monotonic()
            create.communicate(body)
            time.sleep(3.0)
        answered = [at + took for at, took, good in client.results.connections if good]
        taken.append(min(answered) - begun)
        lab.kubectl("delete", "service", name)
    yield {
        "Services": str(len(taken)),
        "median": f"{statistics.median(taken):.2f} s",
        "longest": f"{max(taken):.2f} s",
    }


def updates(lab: Lab) -> Iterator[Line]:
    """Hosts leave and come back, and the manager is killed, while clients ask."""
    lab.deploy(_SERVER)
    address = lab.expose("updates", _SERVER)
    until_served(lab, address, CLIENT)
    with asking(lab, address) as client:
        for _ in range(_UPDATES):
            lab.kubectl("label", "node", node(2), f"{_EXCLUDED}=")
            time.sleep(3.0)
            lab.kubectl("label", "node", node(2), f"{_EXCLUDED}-")
            time.sleep(3.0)
    yield {"what": f"a host leaves and comes back, {_UPDATES} times", **client.results.lost()}
    with asking(lab, address) as client:
        for _ in range(_RESTARTS):
            lab.gateway.run("pkill", "-KILL", "-P", str(lab.gateway.pid("manager")))
            time.sleep(10.0)
    yield {"what": f"the manager is killed, {_RESTARTS} times", **client.results.lost()}


def dead_node(lab: Lab) -> Iterator[Line]:
    """Silence a node at once while clients send requests, and bring it back."""
    lab.deploy(_SERVER)
    address = lab.expose("dead", _SERVER)
    every, last = list[ClientResults](), list[float]()
    for _ in range(_ROUNDS):
        until_served(lab, address, CLIENT)
        with asking(lab, address) as client:
            cut = time.monotonic()
            lab.gateway.run("ip", "link", "set", "node2", "down")
            time.sleep(15.0)
        lab.gateway.run("ip", "link", "set", "node2", "up")
        every.append(client.results)
        last.append(client.results.last_failure(cut))
    yield {
        "what": f"one of two nodes dies, {_ROUNDS} times",
        "last failure after": f"{statistics.median(last):.1f} s",
        "at most": f"{max(last):.1f} s",
        **together(every).lost(),
    }


def failover(lab: Lab) -> Iterator[Line]:
    """Let the gateway that has the addresses lose its manager, or die."""
    lab.deploy(_SERVER)
    address = lab.expose("failover", _SERVER)
    ends = {
        "the leading manager is told to end": _end_manager,
        "the leading manager is killed": _kill_manager,
        "the gateway that has the addresses dies": _cut,
    }
    for what, end in ends.items():
        every = [_changed_hands(lab, address, end) for _ in range(_ROUNDS)]
        silences = [one.longest_silence() for one in every]
        yield {
            "what": f"{what}, {_ROUNDS} times",
            "longest silence": f"{statistics.median(silences):.1f} s",
            "at most": f"{max(silences):.1f} s",
            **together(every).lost(),
        }


def _changed_hands(lab: Lab, address: str, end: Callable[[Lab, str], None]) -> ClientResults:
    """Take the addresses from the gateway that has them, while a client asks."""
    until_served(lab, address, NEAR)
    plane = lab.cluster.plane
    first, before = leader(plane), holder(plane)
    with asking(lab, address, on=NEAR) as client:
        end(lab, first)
        block_until("another leader", lambda: holder(plane) not in {before, ""}, PATIENCE)
        time.sleep(15.0)
    lab.gateway.run("ip", "link", "set", first, "up")
    time.sleep(30.0)  # until the first manager waits for the lease
    return client.results


def _end_manager(lab: Lab, gateway: str, how: str = "-TERM") -> None:
    machine = lab.machine(gateway)
    machine.run("pkill", how, "-P", str(machine.pid("manager")))


def _kill_manager(lab: Lab, gateway: str) -> None:
    _end_manager(lab, gateway, "-KILL")


def _cut(lab: Lab, gateway: str) -> None:
    lab.gateway.run("ip", "link", "set", gateway, "down")


def until_served(lab: Lab, address: str, on: str) -> None:
    """Wait until a client gets an answer at an address."""

    def answers() -> bool:
        url = f"http://{address}:{probe.CONNECTIONS}/hostname"
        done = subprocess.run(
            lab.machine(on).command("curl", "--silent", "--max-time", "2", url),
            capture_output=True,
            check=False,
        )
        return not done.returncode

    block_until(f"answers at {address}", answers, PATIENCE)
    time.sleep(5.0)  # until every node is known to be well
