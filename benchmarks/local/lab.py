"""Clusters to measure on, servers in them, and clients that ask without a pause."""

import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.local import probe
from labs.cluster import Cluster, Settings, remove, start_manager
from labs.cluster.cluster import AGNHOST_IMAGE, CLIENT, NODE
from labs.cluster.gateways import join, start_gateways
from labs.cluster.images import Root, pack
from labs.cluster.machines import Machine, member
from labs.cluster.network import IPV4
from labs.cluster.node import load_image
from labs.cluster.programs import Programs
from proreus.testing.waiting import block_until

NAME = "bench"
NEAR = "near"
"""A client in the network of the nodes, where gateways are told apart by ARP."""
WEB, STREAM = 80, 5201
"""Ports of a web server, and of one that takes and gives streams of bytes."""

_IMAGE = "localhost/bench:1"
_NEAR_NUMBER = 100
PATIENCE = 300.0
_WEB_SERVER = """\
global
    maxconn 2000
defaults
    mode http
    timeout client 1m
frontend web
    bind :8000
    http-request return status 200 content-type text/plain string ok
"""

Line: TypeAlias = Mapping[str, str]
"""The cells of a line of a table, by the heads of their columns."""


class Lab:
    """A cluster with two nodes."""

    def __init__(self, cluster: Cluster) -> None:
        """It runs."""
        self.cluster = cluster
        self.gateway = cluster.gateway
        self.free_addresses = {
            CLIENT: _addresses(IPV4.clients, range(10, 250)),
            NEAR: _addresses(IPV4.nodes, range(_NEAR_NUMBER + 1, 200)),
        }
        """More addresses that clients may take, each once."""

    def machine(self, name: str) -> Machine:
        """Return a machine by its name."""
        return member(self.gateway, name)

    def kubectl(self, *arguments: str) -> str:
        """Return what kubectl prints."""
        return self.cluster.plane.kubectl(*arguments)

    def get(self, *what: str) -> dict[str, Any]:
        """Return an object."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *what, "--output=json"))
        return found

    def deploy(self, name: str, *, node: str = "") -> None:
        """Start servers, one on each node or one on `node`, and wait until they are ready."""
        labels = {"app": name}
        containers = [
            _container("answers", AGNHOST_IMAGE, "/agnhost", "netexec"),
            _container("web", _IMAGE, "/usr/sbin/haproxy", "-db", "-f", "/etc/web.cfg"),
            _container("stream", _IMAGE, "/usr/bin/iperf3", "-s"),
        ]
        pod = {"containers": containers, "terminationGracePeriodSeconds": 0}
        pod |= {"nodeName": node} if node else {}
        kind = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet" if not node else "Deployment",
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }
        self.cluster.plane.apply(json.dumps(kind))
        self.kubectl("rollout", "status", f"{kind['kind']}/{name}", f"--timeout={PATIENCE:.0f}s")

    def expose(self, name: str, server: str, *, policy: str = "Local") -> str:
        """Make a Service of the servers of that name; answers its address when it has one."""
        self.cluster.plane.apply(json.dumps(service(name, server, policy=policy)))
        block_until(f"an address of {name}", lambda: self._ingress(name), PATIENCE)
        return str(self._ingress(name)[0]["ip"])

    def _ingress(self, name: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.get("service", name)["status"]["loadBalancer"].get(
            "ingress", []
        )
        return found


def service(name: str, server: str, *, policy: str = "Local", address: str = "") -> dict[str, Any]:
    """Make a Service of the servers of one name, with all their ports."""
    ports = [
        {"name": "web", "port": WEB, "targetPort": 8000},
        {"name": "stream", "port": STREAM, "targetPort": STREAM},
        {"name": "connections", "port": probe.CONNECTIONS, "targetPort": 8080},
        {"name": "datagrams", "port": probe.DATAGRAMS, "targetPort": 8081, "protocol": "UDP"},
    ]
    spec = {
        "type": "LoadBalancer",
        "externalTrafficPolicy": policy,
        "selector": {"app": server},
        "ports": ports,
        **({"loadBalancerIP": address} if address else {}),
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


@contextmanager
def one_gateway(programs: Programs) -> Iterator[Lab]:
    """Run a cluster as `make cluster-up` makes it, and a client in the network of the nodes."""
    with _cluster(programs, Settings(name=NAME), _start_one) as lab:
        yield lab


@contextmanager
def two_gateways(programs: Programs) -> Iterator[Lab]:
    """Run a cluster with two managers, each on a machine of its own, that elect a leader."""
    with _cluster(programs, Settings(name=NAME, routes=False), _start_two) as lab:
        yield lab


@contextmanager
def working_gateways(programs: Programs) -> Iterator[Lab]:
    """Run a cluster with two gateways that share the addresses."""
    settings = Settings(name=NAME, routes=False)
    with _cluster(programs, settings, partial(_start_two, vrrp=True)) as lab:
        yield lab


@contextmanager
def _cluster(
    programs: Programs, settings: Settings, manager: Callable[[Cluster], None]
) -> Iterator[Lab]:
    remove(NAME)
    cluster = Cluster(settings, programs, _report)
    try:
        cluster.start(manager)
        archive = _image(cluster.directory / "images")
        for node in cluster.nodes:
            load_image(node.machine, archive)
        yield Lab(cluster)
    finally:
        remove(NAME)


def _start_one(cluster: Cluster) -> None:
    join(cluster, NEAR, _NEAR_NUMBER)
    start_manager(cluster)


def _start_two(cluster: Cluster, *, vrrp: bool = False) -> None:
    join(cluster, NEAR, _NEAR_NUMBER)
    start_gateways(cluster, vrrp=vrrp)


def _addresses(network: str, numbers: Iterable[int]) -> Iterator[str]:
    return (f"{network.rpartition('.')[0]}.{number}" for number in numbers)


def _container(name: str, image: str, *command: str) -> dict[str, Any]:
    return {"name": name, "image": image, "command": list(command)}


def _image(place: Path) -> Path:
    """Build an image with the servers of streams and pages, of this machine's programs."""
    root = Root(place / "bench")
    for name, target in (("haproxy", "/usr/sbin/haproxy"), ("iperf3", "/usr/bin/iperf3")):
        root.program(Path(shutil.which(name) or name), target)
    (root.path / "etc/web.cfg").write_text(_WEB_SERVER)
    archive = place / "bench.tar"
    pack(root.path, [_IMAGE], archive, entrypoint=["/usr/bin/iperf3"])
    return archive


def _report(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)


class ClientResults:
    """The results of a client's attempts."""

    def __init__(self, output: dict[str, list[probe.Attempt]]) -> None:
        """Take the client's words."""
        self.connections = output["connections"]
        self.datagrams = output["datagrams"]
        self.streams = output["streams"]

    def lost(self) -> dict[str, str]:
        """Return how many of each kind had no answer."""
        kinds = {
            "datagrams lost": self.datagrams,
            "new connections without an answer": self.connections,
            "connections broken": self.streams,
        }
        return {
            title: f"{sum(1 for one in tried if not one[2]):,} of {len(tried):,}"
            for title, tried in kinds.items()
        }

    def last_failure(self, since: float) -> float:
        """Return seconds from a moment to the start of the last connection without answer."""
        return max((at - since for at, _, good in self.connections if not good), default=0.0)

    def longest_silence(self) -> float:
        """Return the longest time from the start of one answered connection to that of the next."""
        starts = sorted(at for at, _, good in self.connections if good)
        return max((b - a for a, b in itertools.pairwise(starts)), default=0.0)


def together(every: Iterable[ClientResults]) -> ClientResults:
    """Put the attempts of several clients together."""
    sum_of = ClientResults({"connections": [], "datagrams": [], "streams": []})
    for one in every:
        sum_of.connections += one.connections
        sum_of.datagrams += one.datagrams
        sum_of.streams += one.streams
    return sum_of


class Client:
    """A client that asks until it is told to end."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        """It has been started."""
        self._process = process
        self.results = ClientResults({"connections": [], "datagrams": [], "streams": []})

    def end(self) -> None:
        """End it and take what it says."""
        output, _ = self._process.communicate("")
        self.results = ClientResults(json.loads(output))


@contextmanager
def asking(lab: Lab, address: str, *, on: str = CLIENT, warm: float = 3.0) -> Iterator[Client]:
    """Run a client that sends requests all the time."""
    command: Sequence[str] = (sys.executable, probe.__file__, address)
    with subprocess.Popen(
        lab.machine(on).command(*command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        client = Client(process)
        try:
            time.sleep(warm)
            yield client
            time.sleep(probe.PATIENCE + 1.0)
            client.end()
        finally:
            process.kill()


def node(number: int) -> str:
    """Return the name of a node, from 1 on."""
    return f"{NODE}{number}"
