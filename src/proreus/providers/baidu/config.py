"""The cloud-config of the provider `baidu`: the official manager's JSON file, read unmodified.

The official manager passes over names that it does not know; so they are warned about here, and not
refused. Keys that mean nothing here are known, so that nobody is warned of them.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.ownership import Tenants

REGION: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")
VPC: Final = re.compile(r"vpc-[0-9A-Za-z]{1,60}")
SUBNET: Final = re.compile(r"sbn-[0-9A-Za-z]{1,60}")
"""The forms of ids."""

_SPELT: Final = {
    "access_key_id": "AccessKeyID",
    "secret_access_key": "SecretAccessKey",
    "api_endpoint": "APIEndpoint",
    "ca_file": "CAFile",
}
"""Keys of the file that do not follow from the names of fields."""


def _rename(field: str) -> str:
    return _SPELT.get(field) or "".join(word.capitalize() for word in field.split("_"))


class Credentials(msgspec.Struct, frozen=True, rename="camel"):
    """An access key; with a token it counts for a time only, as STS gives it.

    Attributes:
        access_key_id: The key's id.
        secret_access_key: The secret that signs requests.
        session_token: The token of a temporary key; "" for a key that stays.
    """

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        """Show nothing of the key."""
        return "Credentials(<hidden>)"


class BaiduConfig(ConfigSection, frozen=True, kw_only=True, rename=_rename):
    """The whole file.

    Attributes:
        cluster_id: The id of the cluster; it is in the names of load balancers, so two clusters of
            an account must not share it.
        cluster_name: Not used.
        access_key_id: The key's id.
        secret_access_key: The secret that signs requests.
        region: The region, such as bj; it is in the addresses of the APIs, and the region of all
            nodes.
        vpc_id: The VPC of the nodes; by default that of the nodes that are asked about.
        subnet_id: The subnet of load balancers; by default that of a node.
        master_id: Not used.
        endpoint: The endpoint of the service CCE; not used, since machines are read from BCC.
        node_name: Not used.
        debug: Not used.
        session_token: Ours: the session token of a temporary key.
        credentials_file: Ours: a file with a key as STS answers it, in the place of the keys above.
        bare_metal: Ours: whether machines that BCC does not know are looked for in BBC.
        api_endpoint: Ours: the address of all APIs, in the place of one address for each.
        ca_file: Ours: a file of CA certificates, in the place of the system's.
        timeout: Ours: how long to wait for a connection, and for an answer.
        tenants: Ours: which cloud objects Services may name.
    """

    ignore_unknown: ClassVar[bool] = True

    cluster_id: str
    cluster_name: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    region: str
    vpc_id: str = ""
    subnet_id: str = ""
    master_id: str = ""
    endpoint: str = ""
    node_name: str = ""
    debug: bool = False
    session_token: str = ""
    credentials_file: str = ""
    bare_metal: bool = True
    api_endpoint: str = ""
    ca_file: str = ""
    timeout: timedelta = timedelta(seconds=30)
    tenants: Tenants = msgspec.field(default_factory=Tenants)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not re.fullmatch(r"[0-9A-Za-z_.-]{1,40}", self.cluster_id):
            yield "ClusterId: give up to 40 letters, digits, -, _ and ., such as cce-5f3k2n8a"
        if not REGION.fullmatch(self.region):
            yield "Region: give the region's short name, such as bj or gz"
        if self.vpc_id and not VPC.fullmatch(self.vpc_id):
            yield "VpcId: give the id of the VPC, such as vpc-9kq2b6mw1c3d"
        if self.subnet_id and not SUBNET.fullmatch(self.subnet_id):
            yield "SubnetId: give the id of the subnet, such as sbn-25khfnxgfb73"
        yield from self._problems_of_keys()
        if self.timeout <= timedelta():
            yield "Timeout: must be more than 0, such as 30s"
        if self.api_endpoint:
            url = urlsplit(self.api_endpoint)
            if url.scheme not in {"http", "https"} or not url.hostname:
                yield "APIEndpoint: give a URL such as https://bce.example.org"
            elif url.path.strip("/") or url.query or url.fragment:
                yield "APIEndpoint: give it without a path"

    def _problems_of_keys(self) -> Iterator[str]:
        given = [
            key
            for key, value in (
                ("AccessKeyID", self.access_key_id),
                ("SecretAccessKey", self.secret_access_key),
                ("SessionToken", self.session_token),
            )
            if value.strip()
        ]
        if self.credentials_file:
            for key in given:
                yield f"{key}: give either this or CredentialsFile"
            return
        for key in ("AccessKeyID", "SecretAccessKey"):
            if key not in given:
                yield f"{key}: is required, or else CredentialsFile"

    def credentials(self) -> Credentials:
        """Return the key; reads the file if one is named.

        Raises:
            ConfigError: The file cannot be read, or has no key.
        """
        if not self.credentials_file:
            return Credentials(
                self.access_key_id.strip(), self.secret_access_key.strip(), self.session_token
            )
        place = f"CredentialsFile: {self.credentials_file}"
        try:
            found = msgspec.json.decode(Path(self.credentials_file).read_bytes(), type=Credentials)
        except OSError as error:
            raise ConfigError((f"{place}: cannot be read: {error.strerror}",)) from error
        except (msgspec.DecodeError, UnicodeDecodeError):
            # The decoder's own text could show a part of the file.
            raise ConfigError(
                (f"{place}: must be JSON with accessKeyId, secretAccessKey and sessionToken",)
            ) from None
        if not (found.access_key_id and found.secret_access_key):
            raise ConfigError((f"{place}: accessKeyId or secretAccessKey is empty",))
        return found
