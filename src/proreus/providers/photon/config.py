"""The cloud-config of the provider `photon`: the in-tree provider's file, in both of its forms.

Until Kubernetes 1.5 it names a tenant and a project, and says whether certificates are checked;
later it has the project's id. Names that the in-tree provider does not know it refuses, and so they
are refused here. The section [Client] is ours.
"""

from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from proreus.cloudprovider import sections
from proreus.cloudprovider.config import ConfigSection

LOGIN_FILE = "/etc/kubernetes/pc_login_info"
"""Where the in-tree provider looks for user and password."""


class Global(ConfigSection, frozen=True, kw_only=True):
    """Section [Global]: which Photon Controller, and where in it.

    Attributes:
        target: The address of the API, such as https://photon.example.org:443.
        project: The id of the project that the nodes are in, or its name.
        tenant: The tenant of the project, by name or id; needed only for a project's name that
            several tenants have.
        override_ip: Whether Nodes are called by IP addresses, as with `--hostname-override`.
        vm_id: The virtual machine of a kubelet; without effect here.
        authentication: Whether Photon Controller wants a token of Lightwave.
        ignore_certificate: Whether certificates are not checked; None where the file does not say.
    """

    target: str
    project: str
    tenant: str = ""
    override_ip: bool = msgspec.field(default=False, name="overrideIP")
    vm_id: str = msgspec.field(default="", name="vmID")
    authentication: bool = False
    ignore_certificate: bool | None = msgspec.field(default=None, name="ignoreCertificate")

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        url = urlsplit(self.target)
        if url.scheme not in {"http", "https"} or not url.hostname:
            yield "target: give a URL such as https://photon.example.org:443"
        elif url.query or url.fragment:
            yield "target: give it without what begins with ? or #"
        elif "@" in url.netloc:
            yield "target: give user and password in a file (login-file), not in the URL"
        if not self.project.strip():
            yield "project: is empty: give the id or the name of the project"


class Client(sections.Client, frozen=True, kw_only=True, rename="kebab"):
    """Section [Client], of ours: how the APIs are reached.

    Attributes:
        ca_file: A file of CA certificates of Photon Controller and Lightwave; with it certificates
            are checked.
        login_file: The file with the user in its first line and the password in its second.
    """

    login_file: str = LOGIN_FILE

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        yield from super().problems()
        if not self.login_file.strip():
            yield f"login-file: is empty: leave it out for {LOGIN_FILE}"


class PhotonConfig(ConfigSection, frozen=True, kw_only=True):
    """The whole file."""

    global_: Global
    client: Client = msgspec.field(default_factory=Client)

    def problems(self) -> Iterator[str]:
        """Report problems between the sections."""
        if self.client.ca_file and self.global_.ignore_certificate:
            yield (
                "[Client] ca-file: is without effect while [Global] ignoreCertificate is true:"
                " leave out one of the two"
            )

    @property
    def verifies(self) -> bool:
        """Whether certificates are checked.

        The in-tree provider checked them by default while its file named a tenant, and never does
        since; so a file without either key says nothing else.
        """
        if self.client.ca_file:
            return True
        if self.global_.ignore_certificate is not None:
            return not self.global_.ignore_certificate
        return bool(self.global_.tenant)
