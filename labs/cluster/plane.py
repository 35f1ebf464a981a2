"""The control plane of a cluster, on its gateway: etcd, kube-apiserver and their companions.

It differs from `proreus.testing.controlplane` in what real nodes need: an address that they
reach, tokens to join with, the node authorizer, a controller manager and a scheduler.
"""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from labs.cluster.errors import ClusterError
from labs.cluster.machines import Machine
from labs.cluster.network import Family
from labs.cluster.programs import Programs
from proreus.testing.controlplane import kubeconfig
from proreus.testing.controlplane.certificates import Authority, signing_key, write_private

API_PORT = 6443
"""Port of the API server on the gateway."""

DNS_DOMAIN = "cluster.local"
"""Domain of the cluster's names."""

_READY_SECONDS = 600.0

_NO_EVICTION = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"

_COREFILE = """\
{domain}:53 in-addr.arpa:53 ip6.arpa:53 {{
    bind {address}
    errors
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
    }}
}}
"""

_JOINING = """\
apiVersion: v1
kind: Secret
metadata: {{name: bootstrap-token-{id}, namespace: kube-system}}
type: bootstrap.kubernetes.io/token
stringData:
  token-id: "{id}"
  token-secret: "{secret}"
  usage-bootstrap-authentication: "true"
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: nodes-join}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:node-bootstrapper
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: nodes-get-certificates}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:certificates.k8s.io:certificatesigningrequests:nodeclient
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: dns}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dns}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: dns}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: dns}}
rules:
- {{apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}}
- {{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}}
"""


class Plane:
    """The control plane; its files are those of the gateway."""

    def __init__(
        self,
        machine: Machine,
        programs: Programs,
        used: Sequence[Family],
        *,
        verify_kubelets: bool = False,
    ) -> None:
        """Keep the settings; nothing is started yet.

        Args:
            machine: The gateway.
            programs: What to start.
            used: The families of addresses.
            verify_kubelets: Whether kubelets must show certificates of the cluster's authority.
        """
        self._verify_kubelets = verify_kubelets
        self._machine = machine
        self._programs = programs
        self._used = used
        self._authority = Authority()
        self._token = (secrets.token_hex(3), secrets.token_hex(8))
        self.address = used[0].gateway()
        self.url = f"https://{self.address}:{API_PORT}"

    def start(self, *, node_ipam: bool, evicts: bool = True) -> None:
        """Start everything and wait until the API server is ready.

        Args:
            node_ipam: whether kube-controller-manager gives nodes their pods' networks.
            evicts: whether it gives up silent nodes and evicts their pods.

        Raises:
            ClusterError: it does not get ready.
        """
        self._write_files()
        self._start_etcd()
        self._machine.start(
            "kube-apiserver", str(self._programs.control_plane.kube_apiserver), *self._apiserver()
        )
        self._wait_until_ready()
        token, secret = self._token
        self.apply(_JOINING.format(id=token, secret=secret))
        self._machine.start(
            "kube-controller-manager",
            self._programs.path("kube-controller-manager"),
            *self._controllers(node_ipam=node_ipam),
            *([] if evicts else [_NO_EVICTION]),
        )
        self._machine.start(
            "kube-scheduler",
            self._programs.path("kube-scheduler"),
            f"--kubeconfig={self.kubeconfig_for('system:kube-scheduler')}",
            "--leader-elect=false",
            f"--cert-dir={self._file('scheduler')}",
        )
        self._machine.start("coredns", self._programs.path("coredns"), "-conf", self._corefile())

    def apply(self, manifests: str) -> None:
        """Apply manifests, YAML, as an administrator.

        Raises:
            ClusterError: the API server refuses them.
        """
        self.kubectl("apply", "--server-side", "-f", "-", stdin=manifests)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl on the gateway; answers what it prints.

        Raises:
            ClusterError: it failed.
        """
        given = f"--kubeconfig={self.kubeconfig}"
        return self._machine.run(self._programs.path("kubectl"), given, *arguments, stdin=stdin)

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator."""
        return self._machine.directory / "admin.kubeconfig"

    @property
    def ca_file(self) -> Path:
        """The certificate of the cluster's authority."""
        return self._machine.directory / "ca.crt"

    def kubeconfig_for(self, user: str, groups: Sequence[str] = (), name: str = "") -> Path:
        """Make a kubeconfig file, `<name>.kubeconfig`, with a new certificate for `user`."""
        certificate, key = self._authority.client(user, groups)
        content = kubeconfig.render(
            url=self.url,
            ca=self._authority.certificate,
            user=user,
            certificate=certificate,
            key=key,
        )
        name = name or user.rpartition(":")[2]
        return write_private(self._machine.directory / f"{name}.kubeconfig", content.encode())

    def joining(self) -> str:
        """Return the text of the kubeconfig with which a kubelet asks for its certificate."""
        return kubeconfig.render_token(
            url=self.url,
            ca=self._authority.certificate,
            user="joining",
            token=".".join(self._token),
        )

    def _file(self, name: str) -> str:
        return str(self._machine.directory / name)

    def _write_files(self) -> None:
        place = self._machine.directory
        write_private(self.ca_file, self._authority.certificate)
        write_private(place / "ca.key", self._authority.key)
        certificate, key = self._authority.serving(
            ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
            ("127.0.0.1", self.address, *(family.kubernetes() for family in self._used)),
        )
        write_private(place / "serving.crt", certificate)
        write_private(place / "serving.key", key)
        write_private(place / "service-accounts.key", signing_key())
        for name in ("kubelet-client", "admin"):
            user = f"cluster-{name}"
            certificate, key = self._authority.client(user, ["system:masters"])
            write_private(place / f"{name}.crt", certificate)
            write_private(place / f"{name}.key", key)
        self.kubeconfig_for("cluster-admin", ["system:masters"], "admin")

    def _start_etcd(self) -> None:
        self._machine.start(
            "etcd",
            str(self._programs.control_plane.etcd),
            f"--data-dir={self._file('etcd')}",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
        )

    def _apiserver(self) -> list[str]:
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={self.address}",
            f"--secure-port={API_PORT}",
            f"--cert-dir={self._file('apiserver')}",
            f"--tls-cert-file={self._file('serving.crt')}",
            f"--tls-private-key-file={self._file('serving.key')}",
            f"--client-ca-file={self.ca_file}",
            f"--kubelet-client-certificate={self._file('kubelet-client.crt')}",
            f"--kubelet-client-key={self._file('kubelet-client.key')}",
            "--kubelet-preferred-address-types=InternalIP",
            *([f"--kubelet-certificate-authority={self.ca_file}"] * self._verify_kubelets),
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--enable-bootstrap-token-auth",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._file('service-accounts.key')}",
            f"--service-account-signing-key-file={self._file('service-accounts.key')}",
            f"--service-cluster-ip-range={self._joined('services')}",
            "--allow-privileged",
        ]

    def _controllers(self, *, node_ipam: bool) -> list[str]:
        masks = [
            f"--node-cidr-mask-size-{'ipv6' if ':' in family.pods else 'ipv4'}"
            f"={family.pods_of_a_node}"
            for family in self._used
        ]
        if len(self._used) == 1:
            masks = [f"--node-cidr-mask-size={self._used[0].pods_of_a_node}"]
        ipam = [f"--cluster-cidr={self._joined('pods')}", "--allocate-node-cidrs", *masks]
        return [
            f"--kubeconfig={self.kubeconfig_for('system:kube-controller-manager')}",
            "--leader-elect=false",
            "--cloud-provider=external",
            "--use-service-account-credentials",
            f"--service-cluster-ip-range={self._joined('services')}",
            f"--root-ca-file={self.ca_file}",
            f"--cluster-signing-cert-file={self.ca_file}",
            f"--cluster-signing-key-file={self._file('ca.key')}",
            f"--service-account-private-key-file={self._file('service-accounts.key')}",
            f"--cert-dir={self._file('controllers')}",
            *(ipam if node_ipam else ()),
        ]

    def _corefile(self) -> str:
        path = Path(self._file("Corefile"))
        path.write_text(
            _COREFILE.format(
                domain=DNS_DOMAIN,
                address=" ".join(family.gateway() for family in self._used),
                kubeconfig=self.kubeconfig_for("dns"),
            )
        )
        return str(path)

    def _joined(self, field: str) -> str:
        return ",".join(getattr(family, field) for family in self._used)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                self.kubectl("get", "--raw", "/readyz")
                self.kubectl("get", "namespace", "kube-system")
            except ClusterError as error:
                if time.monotonic() > deadline:
                    log = self._machine.log("kube-apiserver")
                    raise ClusterError(
                        f"kube-apiserver is not ready after {_READY_SECONDS:.0f} s: {error}; its "
                        f"log is {log}"
                    ) from error
                time.sleep(0.5)
            else:
                return
