"""The cloud-config of the provider `simulated`."""

from pathlib import Path

import msgspec

from proreus.cloudprovider.errors import ConfigError


class Settings(msgspec.Struct, frozen=True, rename="kebab"):
    """Section [Global].

    Attributes:
        endpoint: URL of the cloud, such as http://127.0.0.1:8080.
        region: The cloud's region, part of each provider id.
        token: The bearer token; or
        token_file: a file that holds it.
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

    def __repr__(self) -> str:
        return f"Settings(endpoint={self.endpoint!r}, region={self.region!r})"

    def read_token(self) -> str:
        """The token, from its file if there is one.

        Raises:
            ConfigError: The file cannot be read.
        """
        if not self.token_file:
            return self.token
        try:
            return Path(self.token_file).read_text().strip()
        except OSError as error:
            problem = f"[Global] token-file: cannot read {self.token_file}: {error.strerror}"
            raise ConfigError((problem,)) from error


class SimulatedConfig(msgspec.Struct, frozen=True):
    """The whole file."""

    settings: Settings = msgspec.field(name="Global")

    def problems(self) -> tuple[str, ...]:
        """What is wrong beyond types, one sentence each."""
        given = self.settings
        found = []
        if not given.endpoint.startswith(("http://", "https://")):
            found.append("[Global] endpoint: give a URL such as http://127.0.0.1:8080")
        if not given.region or "/" in given.region:
            found.append("[Global] region: give a name without /")
        if bool(given.token) == bool(given.token_file):
            found.append("[Global] token, token-file: give exactly one of the two")
        if given.batch_size < 1:
            found.append("[Global] batch-size: must be at least 1")
        if given.timeout <= 0 or given.connect_timeout <= 0:
            found.append("[Global] timeout, connect-timeout: must be more than 0 seconds")
        return tuple(found)
