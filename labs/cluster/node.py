"""Runs one node: containerd, kubelet and kube-proxy on a machine of its own."""

import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from labs.cluster.machines import Machine
from labs.cluster.network import Family
from labs.cluster.plane import DNS_DOMAIN, Plane
from labs.cluster.programs import Programs

PAUSE_IMAGE = "localhost/pause:1"
"""The image that holds the namespaces of each pod."""

_SOCKET = "/run/containerd.sock"

# The score of processes may not be lowered below the parent's where CAP_SYS_RESOURCE is missing.
_CONTAINERD = """\
version = 2
root = "{directory}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs"]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def load_image(machine: Machine, archive: Path) -> None:
    """Give the container runtime of a node an archive of images.

    Raises:
        ClusterError: it does not take it.
    """
    machine.run(
        *("ctr", "--address", _SOCKET, "--namespace", "k8s.io", "images", "import"),
        *("--snapshotter", "overlayfs", str(archive)),
    )


class Node:
    """A node; its name is its machine's."""

    def __init__(
        self, machine: Machine, programs: Programs, addresses: Sequence[str], cgroup: str
    ) -> None:
        """Keep the settings; control groups of its pods will lie in `cgroup`."""
        self.machine = machine
        self.name = machine.name
        self.addresses = tuple(addresses)
        self._programs = programs
        self._cgroup = cgroup

    def start_containerd(self) -> None:
        """Start the container runtime.

        Raises:
            ClusterError: the machine is gone.
        """
        config = _CONTAINERD.format(
            directory=self.machine.directory,
            socket=_SOCKET,
            pause=PAUSE_IMAGE,
            cni=self._programs.cni,
        )
        (self.machine.directory / "cni").mkdir()
        self.machine.start("containerd", "containerd", "--config", self._write("c.toml", config))

    def start(
        self,
        plane: Plane,
        used: Sequence[Family],
        labels: Sequence[str] = (),
        *,
        serving: bool = False,
    ) -> None:
        """Start the kubelet, which joins by a token, and kube-proxy.

        Args:
            plane: The control plane to join.
            used: The families of addresses.
            labels: Labels of the Node.
            serving: Whether the kubelet asks for a serving certificate, or signs one itself.

        Raises:
            ClusterError: the machine is gone.
        """
        self.start_kubelet(
            plane, used, *([f"--node-labels={','.join(labels)}"] if labels else ()), serving=serving
        )
        user = plane.kubeconfig_for("system:kube-proxy")
        self.machine.start(
            "kube-proxy",
            self._programs.path("kube-proxy"),
            f"--kubeconfig={user}",
            "--proxy-mode=nftables",
            f"--hostname-override={self.name}",
            f"--cluster-cidr={','.join(family.pods for family in used)}",
            # These settings are the whole machine's.
            "--conntrack-max-per-core=0",
        )

    def start_kubelet(
        self, plane: Plane, used: Sequence[Family], *more: str, serving: bool = False
    ) -> None:
        """Start the kubelet with more flags; the one before it has ended.

        Raises:
            ClusterError: the machine is gone.
        """
        config = self._write("kubelet.yaml", self._kubelet(plane.ca_file, used, serving=serving))
        joining = self._write("joining.kubeconfig", plane.joining())
        files = self.machine.directory / "kubelet"
        self.machine.start(
            "kubelet",
            self._programs.path("kubelet"),
            f"--config={config}",
            f"--root-dir={files}",
            f"--cert-dir={files / 'pki'}",
            f"--bootstrap-kubeconfig={joining}",
            f"--kubeconfig={self.machine.directory / 'kubelet.kubeconfig'}",
            "--cloud-provider=external",
            f"--hostname-override={self.name}",
            f"--node-ip={','.join(self.addresses)}",
            *more,
        )

    def join_pods(self, networks: Sequence[str]) -> None:
        """Do a CNI's work: write the configuration that makes the node ready for pods."""
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": network}] for network in networks],
                "routes": [
                    {"dst": "::/0" if ":" in network else "0.0.0.0/0"} for network in networks
                ],
            },
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        lists = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}
        # Renamed into place, since the runtime reads whatever appears.
        new = self.machine.directory / "cni" / ".new"
        new.write_text(json.dumps(lists))
        new.rename(new.with_name("10-pods.conflist"))

    def _kubelet(self, ca_file: Path, used: Sequence[Family], *, serving: bool) -> str:
        resolver = self._write("resolv.conf", "")
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(ca_file)},
            },
            "authorization": {"mode": "Webhook"},
            "serverTLSBootstrap": serving,
            "clusterDNS": [used[0].gateway()],
            "clusterDomain": DNS_DOMAIN,
            "resolvConf": resolver,
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "podLogsDir": str(self.machine.directory / "logs"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}/{self.name}",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            # All images were loaded: none could be had again.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
            "nodeStatusUpdateFrequency": "5s",
            "syncFrequency": "10s",
            "maxPods": 60,
        }
        return yaml.safe_dump(config, sort_keys=False)

    def _write(self, name: str, content: str) -> str:
        path = self.machine.directory / name
        path.touch(mode=0o600)
        path.write_text(content)
        return str(path)
