"""A Deployment, its load balancer and a client that asks it, command by command."""

import shlex

from labs.cluster.cluster import AGNHOST_IMAGE, CLIENT, directory_of
from labs.cluster.machines import GATEWAY, Machine
from labs.cluster.programs import Programs

_QUESTIONS = 6
_PATIENCE = "600s"


class Demo:
    """Runs commands on a cluster's machines, and shows them with what they say."""

    def __init__(self, name: str, machines: dict[str, Machine], programs: Programs) -> None:
        """Keep the running cluster `name`."""
        self._machines = machines
        self._kubectl = (
            programs.path("kubectl"),
            f"--kubeconfig={directory_of(name) / GATEWAY / 'admin.kubeconfig'}",
        )

    def play(self) -> None:
        """Make a Deployment and a Service, unless they are there, and ask by the latter's address.

        Raises:
            ClusterError: a command failed.
        """
        self._kube("get", "nodes", "-o", "wide")
        if not self._has("deployment"):
            self._kube(
                *("create", "deployment", "web", f"--image={AGNHOST_IMAGE}", "--replicas=2"),
                *("--", "/agnhost", "netexec"),
            )
        if not self._has("service"):
            self._kube(
                *("expose", "deployment", "web", "--type=LoadBalancer"),
                *("--port=80", "--target-port=8080"),
            )
        self._kube("rollout", "status", "deployment", "web", f"--timeout={_PATIENCE}")
        field = "{.status.loadBalancer.ingress[0].ip}"
        self._kube("wait", "service", "web", f"--for=jsonpath={field}", f"--timeout={_PATIENCE}")
        self._kube("get", "service", "web")
        address = self._ask_kube("get", "service", "web", f"--output=jsonpath={field}")
        for _ in range(_QUESTIONS):
            patience = ("--retry", "60", "--retry-connrefused", "--retry-delay", "1")
            output = self._machines[CLIENT].run(
                "curl", "--silent", "--show-error", *patience, f"http://{address}/hostname"
            )
            _show(CLIENT, ("curl", f"http://{address}/hostname"), output)

    def _has(self, kind: str) -> bool:
        return bool(self._ask_kube("get", kind, "web", "--ignore-not-found", "--output=name"))

    def _kube(self, *arguments: str) -> None:
        _show(GATEWAY, ("kubectl", *arguments), self._ask_kube(*arguments))

    def _ask_kube(self, *arguments: str) -> str:
        return self._machines[GATEWAY].run(*self._kubectl, *arguments)


def _show(machine: str, command: tuple[str, ...], output: str) -> None:
    print(f"{machine} $ {shlex.join(command)}\n{output.rstrip()}\n", flush=True)
