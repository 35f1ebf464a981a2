"""The pieces of work: each gives lines for a table."""

import json
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from benchmarks.local import probe
from benchmarks.local.lab import (
    GATEWAYS,
    NEAR,
    PATIENCE,
    STREAM,
    WEB,
    Lab,
    asking,
    node,
    service,
)
from labs.cluster.cluster import CLIENT
from labs.cluster.network import IPV4
from proreus.testing.waiting import block_until

Line: TypeAlias = Mapping[str, str]
"""The cells of a line, by the heads of their columns."""

_SERVER = "servers"
_ROUNDS = 3
_FIRST_ANSWERS = 10
_UPDATES = 5
_RESTARTS = 3
_EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
_HAPROXY = """\
global
    maxconn 2000
    nbthread 2
defaults
    mode tcp
    option splice-auto
    timeout connect 5s
    timeout client 1m
    timeout server 1m
"""
_LISTENER = """\
listen port-{port}
    bind {address}:{port}
    server node-1 {node}:{node_port}
"""


def paths(lab: Lab) -> Iterator[Line]:
    """Measure one server over four ways to it."""
    lab.deploy("path", node=node(1))
    address = lab.expose("path", "path")
    ports = {one["port"]: one["nodePort"] for one in lab.get("service", "path")["spec"]["ports"]}
    (pod,) = lab.get("pods", "--selector=app=path")["items"]
    _start_haproxy(lab, ports)
    ways = {
        "the pod itself": (pod["status"]["podIP"], 8000, STREAM),
        "its node's port": (IPV4.node(1), ports[WEB], ports[STREAM]),
        "Proreus": (address, WEB, STREAM),
        "HAProxy on the gateway": (IPV4.client_gateway(), WEB, STREAM),
    }
    figures: dict[str, list[tuple[float, float, float, float]]] = {way: [] for way in ways}
    for _ in range(_ROUNDS):
        for way, (host, web, stream) in ways.items():
            kept, slow = _pages(lab, f"http://{host}:{web}/")
            fresh, _ = _pages(lab, f"http://{host}:{web}/", "Connection: close")
            figures[way].append((_bits(lab, host, stream), kept, slow, fresh))
    for way, measured in figures.items():
        bits, kept, slow, fresh = (
            statistics.median(column) for column in zip(*measured, strict=True)
        )
        yield {
            "way": way,
            "Gbit/s": f"{bits / 1e9:.1f}",
            "requests/s": f"{kept:,.0f}",
            "99 % within ms": f"{slow:.1f}",
            "new connections/s": f"{fresh:,.0f}",
        }


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
    _until_served(lab, address, CLIENT)
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
    _until_served(lab, address, CLIENT)
    with asking(lab, address) as client:
        cut = time.monotonic()
        lab.gateway.run("ip", "link", "set", "node2", "down")
        time.sleep(15.0)
    lab.gateway.run("ip", "link", "set", "node2", "up")
    yield {
        "what": "one of two nodes dies",
        "last failure after": f"{client.results.last_failure(cut):.1f} s",
        **client.results.lost(),
    }


def failover(lab: Lab) -> Iterator[Line]:
    """Return the gateway that has the addresses loses its manager, or dies."""
    lab.deploy(_SERVER)
    address = lab.expose("failover", _SERVER)
    _until_served(lab, address, NEAR)
    with asking(lab, address, on=NEAR) as client:
        leader = _leader(lab)
        machine = lab.machine(leader)
        machine.run("pkill", "-TERM", "-P", str(machine.pid("manager")))
        block_until("another gateway", lambda: _leader(lab) not in {leader, ""}, PATIENCE)
        time.sleep(10.0)
    yield {
        "what": "the leading manager is told to end",
        "longest silence": f"{client.results.longest_silence():.1f} s",
        **client.results.lost(),
    }
    time.sleep(30.0)  # until the first manager waits for the lease
    with asking(lab, address, on=NEAR) as client:
        leader = _leader(lab)
        lab.gateway.run("ip", "link", "set", leader, "down")
        block_until("another gateway", lambda: _leader(lab) not in {leader, ""}, PATIENCE)
        time.sleep(15.0)
    yield {
        "what": "the gateway that has the addresses dies",
        "longest silence": f"{client.results.longest_silence():.1f} s",
        **client.results.lost(),
    }


def _leader(lab: Lab) -> str:
    """Return the gateway whose manager holds the lease.

    Its identity begins with the machine's name.
    """
    lease = lab.get("lease", "cloud-controller-manager", "--namespace=kube-system")
    holder = lease["spec"].get("holderIdentity") or ""
    return next((name for name in GATEWAYS if holder.startswith(name)), "")


def _until_served(lab: Lab, address: str, on: str) -> None:
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


def _start_haproxy(lab: Lab, ports: Mapping[int, int]) -> None:
    config = lab.gateway.directory / "haproxy.cfg"
    listeners = [
        _LISTENER.format(
            address=IPV4.client_gateway(), port=port, node=IPV4.node(1), node_port=ports[port]
        )
        for port in (WEB, STREAM)
    ]
    config.write_text("".join([_HAPROXY, *listeners]))
    lab.gateway.start("haproxy", shutil.which("haproxy") or "haproxy", "-db", "-f", str(config))
    time.sleep(1.0)


def _bits(lab: Lab, host: str, port: int) -> float:
    """Bits each second of one stream from the client."""
    output = lab.machine(CLIENT).run(
        "iperf3", "--json", "--time=5", f"--client={host}", f"--port={port}"
    )
    return float(json.loads(output)["end"]["sum_received"]["bits_per_second"])


def _pages(lab: Lab, url: str, *headers: str) -> tuple[float, float]:
    """Answers each second, and the milliseconds within which 99 % of them came."""
    more = [word for header in headers for word in ("-H", header)]
    output = lab.machine(CLIENT).run(
        "wrk", "--latency", "-t", "2", "-c", "32", "-d", "5s", *more, url
    )
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    slow = re.search(r"99%\s+([\d.]+)(us|ms|s)", output)
    if rate is None or slow is None:
        raise RuntimeError(f"wrk said: {output}")
    return float(rate[1]), float(slow[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[slow[2]]
