"""Find the API server: by flags, by the environment, or as a Pod."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from proreus.kube.clientconfig import ClientConfig, FileToken, checked_server, read_file
from proreus.kube.errors import ConfigError
from proreus.kube.kubeconfig import from_files
from proreus.kube.proxies import from_environment

__all__ = ["ClientConfig", "FileToken", "load"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder in which the kubelet puts a Pod's token and certificate authority."""


def load(
    kubeconfig: str = "",
    master: str = "",
    *,
    context: str = "",
    env: Mapping[str, str] = os.environ,
    service_account_dir: Path = SERVICE_ACCOUNT,
) -> ClientConfig:
    """Find and read the configuration.

    The first of these counts: `kubeconfig`; the files in $KUBECONFIG, together, without those
    that are not there; `master` by itself, without credentials; the Pod's service account;
    ~/.kube/config. `master` replaces the server of a kubeconfig, `context` its current-context.
    $HTTPS_PROXY, $HTTP_PROXY and $NO_PROXY count unless a kubeconfig has a `proxy-url`.

    Raises:
        ConfigError: the configuration is wrong; names every problem.
    """
    problems: list[str] = []
    paths = [Path(kubeconfig)] if kubeconfig else _listed(env.get("KUBECONFIG", ""))
    home = Path(env.get("HOME", "/")) / ".kube" / "config"
    config: ClientConfig | None = None
    if paths:
        config = from_files(paths, master, context, problems)
    elif master:
        config = ClientConfig(server=checked_server(master, "--master", problems, is_tls=False))
    elif env.get("KUBERNETES_SERVICE_HOST"):
        config = _in_cluster(env, service_account_dir, problems)
    elif _is_there(home):
        paths = [home]
        config = from_files(paths, master, context, problems)
    else:
        problems.append(
            "no API server is configured: give --kubeconfig or --master, set $KUBECONFIG, "
            f"run in a Pod with a service account, or make {home}"
        )
    if config is not None:
        config = _checked(config, paths, env, problems)
    if config is None or problems:
        raise ConfigError(problems)
    return config


def _listed(variable: str) -> list[Path]:
    """Return the files of $KUBECONFIG, each once; all of them if none exists."""
    listed = [Path(path) for path in dict.fromkeys(variable.split(os.pathsep)) if path]
    return [path for path in listed if _is_there(path)] or listed


def _is_there(path: Path) -> bool:
    """Tell whether the file exists or cannot be checked; reading it then reports why."""
    try:
        return path.exists()
    except OSError:  # such as a home directory of root's
        return True


def _checked(
    config: ClientConfig, paths: Sequence[Path], env: Mapping[str, str], problems: list[str]
) -> ClientConfig:
    """Add the proxy to the configuration, and check that TLS can be set up."""
    if not config.proxy:
        proxy = from_environment(config.server, env, problems)
        config = msgspec.structs.replace(config, proxy=proxy)
    try:
        config.ssl_context()
    except ConfigError as exc:
        where = f"{', '.join(map(str, paths))}: " if paths else ""
        problems += [f"{where}{problem}" for problem in exc.problems]
    return config


def _in_cluster(env: Mapping[str, str], directory: Path, problems: list[str]) -> ClientConfig:
    """Read a Pod's configuration: two variables and three files, `namespace` optional."""
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
    namespace, ca = directory / "namespace", directory / "ca.crt"
    has_ca = read_file(ca, "certificate-authority", problems) is not None
    return ClientConfig(
        server=checked_server(
            f"https://{address}:{port}", "$KUBERNETES_SERVICE_HOST", problems, is_tls=True
        ),
        ca=ca if has_ca else None,
        token=token,
        namespace=namespace.read_text().strip() if namespace.exists() else "",
    )
