"""Finding the API server: by flags, by the environment, or as a Pod."""

import os
from collections.abc import Mapping
from pathlib import Path

from proreus.kube.clientconfig import ClientConfig, FileToken, checked_server, read_file
from proreus.kube.errors import ConfigError
from proreus.kube.kubeconfig import from_file

__all__ = ["ClientConfig", "FileToken", "load"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a Pod's token and certificate authority."""


def load(
    kubeconfig: str = "",
    master: str = "",
    *,
    context: str = "",
    env: Mapping[str, str] = os.environ,
    service_account_dir: Path = SERVICE_ACCOUNT,
) -> ClientConfig:
    """Find and read the configuration.

    The first of these counts: `kubeconfig`; the first file in $KUBECONFIG; `master` by itself,
    without credentials; the Pod's service account; ~/.kube/config. `master` replaces the server
    of a kubeconfig, `context` its current-context.

    Raises:
        ConfigError: with all that is wrong.
    """
    problems: list[str] = []
    path = kubeconfig or next(filter(None, env.get("KUBECONFIG", "").split(os.pathsep)), "")
    home = Path(env.get("HOME", "/")) / ".kube" / "config"
    config: ClientConfig | None = None
    if path:
        config = from_file(Path(path), master, context, problems)
    elif master:
        config = ClientConfig(server=checked_server(master, "--master", problems, is_tls=False))
    elif env.get("KUBERNETES_SERVICE_HOST"):
        config = _in_cluster(env, service_account_dir, problems)
    elif home.exists():
        config = from_file(home, master, context, problems)
    else:
        problems.append(
            "no API server is configured: give --kubeconfig or --master, set $KUBECONFIG, "
            f"run in a Pod with a service account, or make {home}"
        )
    if config is not None:
        try:
            config.ssl_context()
        except ConfigError as exc:
            where = f"{path}: " if path else ""
            problems += [f"{where}{problem}" for problem in exc.problems]
    if config is None or problems:
        raise ConfigError(problems)
    return config


def _in_cluster(env: Mapping[str, str], directory: Path, problems: list[str]) -> ClientConfig:
    """The configuration of a Pod: two variables and three files, `namespace` being optional."""
    host = env["KUBERNETES_SERVICE_HOST"]
    port = env.get("KUBERNETES_SERVICE_PORT", "")
    if not port:
        problems.append("$KUBERNETES_SERVICE_PORT is not set, though $KUBERNETES_SERVICE_HOST is")
    address = f"[{host}]" if ":" in host else host
    token = FileToken(directory / "token")
    try:
        token()
    except ConfigError as exc:
        hint = "does the Pod have automountServiceAccountToken: false?"
        problems += [f"{problem}; {hint}" for problem in exc.problems]
    namespace = directory / "namespace"
    return ClientConfig(
        server=checked_server(
            f"https://{address}:{port}", "$KUBERNETES_SERVICE_HOST", problems, is_tls=True
        ),
        ca=read_file(directory / "ca.crt", "certificate-authority", problems),
        token=token,
        namespace=namespace.read_text().strip() if namespace.exists() else "",
    )
