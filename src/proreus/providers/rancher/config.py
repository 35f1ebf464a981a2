"""The cloud-config of the provider `rancher`: the official manager's environment, or a file.

The official manager reads only CATTLE_URL, CATTLE_ACCESS_KEY and CATTLE_SECRET_KEY, although its
code names a file with a section [Global]. Both are read here. The section [Client] is ours.
"""

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

import msgspec

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.sections import Client

VARIABLES: Final = MappingProxyType(
    {
        "CATTLE_URL": "global.cattle_url",
        "CATTLE_ACCESS_KEY": "global.cattle_access_key",
        "CATTLE_SECRET_KEY": "global.cattle_secret_key",
    }
)
"""The environment variables that stand for keys which the file leaves out."""
_PATH: Final = re.compile(
    r"(?P<prefix>(?:/[^/]+)*?)(?:/(?:v1|v2-beta))?(?P<project>/projects/[0-9A-Za-z]+)?"
    r"(?:/schemas)?/?"
)


class Global(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Global]: which Rancher server, and with which keys.

    Attributes:
        cattle_url: The address of the API, of any version and with or without an environment.
        cattle_access_key: The access key of an environment's API key.
        cattle_secret_key: Its secret key.
    """

    cattle_url: str
    cattle_access_key: str
    cattle_secret_key: str

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        url = urlsplit(self.cattle_url)
        if url.scheme not in {"http", "https"} or not url.hostname:
            yield "cattle-url: give a URL such as http://rancher.example.org:8080/v1"
        elif url.query or url.fragment:
            yield "cattle-url: give it without what begins with ? or #"
        elif url.username or url.password:
            yield "cattle-url: give the keys by cattle-access-key and cattle-secret-key"
        for key in ("cattle_access_key", "cattle_secret_key"):
            value = getattr(self, key)
            if not value.strip():
                yield f"{key.replace('_', '-')}: is empty: give the key that Rancher shows"
            elif ":" in value and key == "cattle_access_key":
                yield "cattle-access-key: cannot have a colon: give the two keys apart"

    def places(self) -> tuple[str, str]:
        """Return the server's address, and the environment: `/projects/1a5`, or ""."""
        url = urlsplit(self.cattle_url)
        found = _PATH.fullmatch(url.path)
        prefix = found["prefix"] if found else url.path.rstrip("/")
        project = (found["project"] or "") if found else ""
        return f"{url.scheme}://{url.netloc}{prefix}", project


class RancherConfig(ConfigSection, frozen=True, kw_only=True):
    """The whole file, with what the environment adds."""

    global_: Global
    client: Client = msgspec.field(default_factory=Client)
