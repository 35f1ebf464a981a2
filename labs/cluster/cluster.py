"""A whole cluster: made step by step, found again by its files, removed without a trace."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from labs.cluster import cgroups, images, machines
from labs.cluster.errors import ClusterError
from labs.cluster.machines import GATEWAY, Machine
from labs.cluster.network import (
    MOST_NODES,
    cable_commands,
    client_side,
    families,
    gateway_commands,
    host_commands,
    kernel_has_ipv6,
    route_commands,
    router_commands,
)
from labs.cluster.node import PAUSE_IMAGE, Node, load_image
from labs.cluster.plane import Plane
from labs.cluster.programs import Programs
from proreus.testing.controlplane.assets import cache
from proreus.testing.controlplane.progress import Report
from proreus.testing.waiting import NotInTime, block_until

CLIENT = "client"
"""The machine outside the cluster that asks its load balancers."""

NODE = "node-"
"""What the names of nodes begin with."""

AGNHOST_IMAGE = "localhost/e2e/agnhost:2.63.0"
"""The image with the server and client that Kubernetes' own specs use; nodes have it."""

PATIENCE = 600.0
"""Seconds that nodes may take to be ready; on a quiet machine with 2 cores it is 20 s."""


class Settings(msgspec.Struct, frozen=True):
    """The settings of a cluster."""

    name: str = "default"
    nodes: int = 2
    dual_stack: bool = False
    """IPv6 beside IPv4. Kubernetes' spec of endpoints on some nodes fails with it: it asks IPv6
    addresses for the health of an IPv4 Service."""
    serving_certificates: bool = False
    """Kubelets ask for serving certificates, and the API server trusts no others. The manager knows
    the machines by an inventory, and approves them."""
    routes: bool = True
    """The manager makes the gateway's routes to pods; else they are made without it."""
    evicts: bool = True
    """kube-controller-manager gives up silent nodes and evicts their pods; else the manager may."""


def directory_of(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the files of a cluster are."""
    return cache(environ, "clusters") / name


def cgroup_of(name: str) -> str:
    """Return the control group that those of the pods lie in."""
    return f"proreus-cluster-{name}"


def remove(name: str) -> None:
    """End a cluster and remove all that is left of it, from whatever state it is in.

    Raises:
        ClusterError: something does not go.
    """
    directory = directory_of(name)
    machines.stop(directory)
    cgroups.remove(cgroup_of(name))
    if directory.exists():
        shutil.rmtree(directory)


def find(name: str, programs: Programs) -> dict[str, Machine]:
    """Return the machines of a cluster that runs.

    Raises:
        ClusterError: it does not run.
    """
    directory = directory_of(name)
    gateway = machines.gateway(directory, programs.path("pause"))
    if gateway is None:
        raise ClusterError(f"no cluster {name} runs: make cluster-up makes one")
    found = {GATEWAY: gateway}
    for file in sorted(gateway.directory.glob("holder-*.pid")):
        member = file.stem.removeprefix("holder-")
        found[member] = machines.member(gateway, member)
    return found


def runs(name: str, programs: Programs) -> bool:
    """Tell whether a cluster of this name runs."""
    return machines.gateway(directory_of(name), programs.path("pause")) is not None


class Cluster:
    """A cluster in the making."""

    def __init__(self, settings: Settings, programs: Programs, report: Report) -> None:
        """Keep the settings; nothing is started yet."""
        if not 1 <= settings.nodes <= MOST_NODES:
            raise ClusterError(f"{settings.nodes} nodes: give 1 to {MOST_NODES}")
        if settings.dual_stack and not kernel_has_ipv6():
            raise ClusterError("this kernel has no IPv6: leave out --dual-stack")
        self.settings = settings
        self.directory = directory_of(settings.name)
        self.families = families(ipv6=settings.dual_stack)
        self.nodes: list[Node] = []
        self.programs = programs
        self._report = report
        self.gateway: Machine
        self.plane: Plane

    def start(self, manager: "Callable[[Cluster], None] | None" = None) -> None:
        """Make it and wait until its nodes are ready, or, without a manager, have joined.

        Args:
            manager: starts the manager, when the nodes have begun to join. It must give nodes
                the networks of their pods; without one, kube-controller-manager does.

        Raises:
            ClusterError: there is one of this name, or a step failed.
        """
        if self.directory.exists():
            raise ClusterError(
                f"there is a cluster {self.settings.name}, or what is left of one: "
                "make cluster-down removes it"
            )
        self._lay_network()
        self._report("etcd, kube-apiserver and their companions")
        self.plane = Plane(
            self.gateway,
            self.programs,
            self.families,
            verify_kubelets=self.settings.serving_certificates,
        )
        self.plane.start(node_ipam=manager is None, evicts=self.settings.evicts)
        self._start_nodes()
        if manager is not None:
            self._report("the manager")
            manager(self)
        self._await_pod_networks()
        if manager is not None:
            self._report("nodes become ready")
            self._until(self._ready, "ready")

    def _lay_network(self) -> None:
        self._report(f"network namespaces of a gateway, {self.settings.nodes} nodes and a client")
        self.directory.mkdir(parents=True, mode=0o700)
        pause = self.programs.path("pause")
        self.gateway = machines.start_gateway(self.directory, pause)
        self.gateway.run_all(gateway_commands(self.families))
        for number in range(1, self.settings.nodes + 1):
            machine = machines.start_machine(self.gateway, f"{NODE}{number}", pause)
            holder = self.gateway.pid(f"holder-{machine.name}")
            self.gateway.run_all(cable_commands(f"node{number}", holder, "nodes0"))
            machine.run_all(router_commands())
            own = [(f.node(number), f.nodes, f.gateway()) for f in self.families]
            machine.run_all(host_commands(own))
            addresses = [address for address, _, _ in own]
            cgroup = cgroup_of(self.settings.name)
            cgroups.make(cgroup, machine.name)
            self.nodes.append(Node(machine, self.programs, addresses, cgroup))
        client = machines.start_machine(self.gateway, CLIENT, pause)
        holder = self.gateway.pid(f"holder-{CLIENT}")
        self.gateway.run_all(cable_commands("clients0", holder, None))
        self.gateway.run_all(client_side(self.families))
        client.run("ip", "link", "set", "lo", "up")
        client.run_all(
            host_commands([(f.client(), f.clients, f.client_gateway()) for f in self.families])
        )

    def _start_nodes(self) -> None:
        self._report("images of the programs of this machine")
        place = self.directory / "images"
        pause = images.pause_image(Path(self.programs.path("pause")), PAUSE_IMAGE, place)
        agnhost = images.agnhost_image(Path(self.programs.path("agnhost")), [AGNHOST_IMAGE], place)
        for node in self.nodes:
            node.start_containerd()
        for node in self.nodes:
            self._report(f"containerd, kubelet and kube-proxy of {node.name}")
            self._until(partial(_answers, node), f"runtime of {node.name}")
            for image in (pause, agnhost):
                load_image(node.machine, image)
            node.start(self.plane, self.families, serving=self.settings.serving_certificates)

    def _await_pod_networks(self) -> None:
        """Be the CNI's agent: configure each node as soon as it has its pods' networks."""
        waiting = {node.name: node for node in self.nodes}

        def configured() -> bool:
            for name, networks in self._pod_networks().items():
                if networks and name in waiting:
                    node = waiting.pop(name)
                    node.join_pods(networks)
                    if not self.settings.routes:
                        self.gateway.run_all(route_commands(networks, node.addresses))
            return not waiting

        self._report("nodes join and get the networks of their pods")
        self._until(configured, "networks of pods")

    def _pod_networks(self) -> dict[str, list[str]]:
        return {
            node["metadata"]["name"]: node["spec"].get("podCIDRs", []) for node in self._listed()
        }

    def _ready(self) -> bool:
        nodes = self._listed()
        conditions = [
            condition["status"]
            for node in nodes
            for condition in node["status"].get("conditions", [])
            if condition["type"] == "Ready"
        ]
        taints = [taint for node in nodes for taint in node["spec"].get("taints", [])]
        return conditions == ["True"] * len(self.nodes) and not taints

    def _listed(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = json.loads(self.plane.kubectl("get", "nodes", "-o", "json"))[
            "items"
        ]
        return nodes

    def _until(self, happened: Callable[[], bool], what: str) -> None:
        try:
            block_until(what, happened, PATIENCE, pause=0.5)
        except NotInTime as error:
            raise ClusterError(f"{error}; the logs are in {self.directory}") from None


def _answers(node: Node) -> bool:
    try:
        node.machine.run("ctr", "--address", "/run/containerd.sock", "version")
    except ClusterError:
        return False
    return True
