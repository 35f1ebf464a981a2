"""The cloud-config of the provider `simulated`."""

from collections.abc import Iterator
from pathlib import Path

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.errors import ConfigError


class Global(ConfigSection, frozen=True, kw_only=True):
    """Section [Global] of the cloud-config.

    Attributes:
        endpoint: URL of the cloud, such as http://127.0.0.1:8080.
        region: The cloud's region, part of each provider id.
        token: The bearer token, or "" where `token_file` is given.
        token_file: The file that holds the bearer token.
        batch_size: The most instances asked for in one call; the cloud has a limit (500).
        connect_timeout: Seconds to wait for a connection.
        timeout: Seconds to wait for an answer.
    """

    endpoint: str
    region: str
    token: str = ""
    token_file: str = ""
    batch_size: int = 500
    connect_timeout: float = 5.0
    timeout: float = 30.0

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not self.endpoint.startswith(("http://", "https://")):
            yield "endpoint: give a URL such as http://127.0.0.1:8080"
        if not self.region or "/" in self.region:
            yield "region: give a name without /"
        if bool(self.token) == bool(self.token_file):
            yield "token, token-file: give exactly one of the two"
        if self.batch_size < 1:
            yield "batch-size: must be at least 1"
        if self.timeout <= 0 or self.connect_timeout <= 0:
            yield "timeout, connect-timeout: must be more than 0 seconds"

    def read_token(self) -> str:
        """Return the token, from its file if there is one.

        Raises:
            ConfigError: The file cannot be read.
        """
        if not self.token_file:
            return self.token
        try:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            problem = f"[Global] token-file: cannot read {self.token_file}: {error.strerror}"
            raise ConfigError((problem,)) from error


class SimulatedConfig(ConfigSection, frozen=True):
    """The whole cloud-config of the provider `simulated`."""

    global_: Global
