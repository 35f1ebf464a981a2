"""Call one engine of oVirt: its single sign-on, and its API."""

import contextlib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from proreus.cloudprovider.credential import Credential, Issued, bearer
from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.cloudprovider.logins import Logins
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.requests import Request, form_body
from proreus.cloudprovider.rest import RestClient, configured_tls
from proreus.providers.ovirt.config import OVirtConfig
from proreus.providers.ovirt.errors import BAD_CREDENTIALS, read_error, read_sso_error
from proreus.providers.ovirt.machines import Machine, machine, machines
from proreus.providers.ovirt.operations import OPERATIONS
from proreus.providers.ovirt.searches import PAGE, page_of, with_ids

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

LOGINS: Final = Logins(900.0)
"""The refused logins of this process.

An engine locks an account for an hour after five wrong passwords, whatever time lies between them.
"""
FOLLOW: Final = "nics,reported_devices"
"""What is described of each machine besides itself.

The devices below a network card would be all of the machine, or none: engines differ.
"""

_SCOPE: Final = "ovirt-app-api"
_FAREWELL: Final = 5.0
_LAST_YEAR: Final = 9000


class Engine:
    """A session with one oVirt engine.

    Attributes:
        search: The search of the cloud-config for machines that may be Nodes; "" for all.
    """

    def __init__(self, config: OVirtConfig, context: "Context") -> None:
        """Keep settings and context; send nothing yet.

        Raises:
            ConfigError: The file of CA certificates cannot be used.
        """
        self._connection = config.connection
        self.search = config.filters.search
        self._token = ""
        self._credential: Credential[str] = Credential(self._login, now=context.now, headers=bearer)
        common: dict[str, Any] = {
            "timeout": config.client.timeout.total_seconds(),
            "tls": configured_tls(
                ca_file=self._connection.cafile, verify=not self._connection.insecure
            ),
        }
        self._sso = RestClient(
            context, self._connection.engine, read_error=read_sso_error, **common
        )
        self._api = RestClient(
            context,
            self._connection.engine,
            headers={"Accept": "application/xml", "Version": "4"},
            credential=self._credential,
            read_error=read_error,
            **common,
        )

    async def close(self) -> None:
        """Revoke the token, and close the connections."""
        try:
            await self._credential.close()
            if self._token:
                form = {"scope": _SCOPE, "token": self._token}
                request = _request("sso.revoke", form=form, timeout=_FAREWELL)
                with contextlib.suppress(CloudError):  # it ends by itself when nobody uses it
                    await self._sso.send(request)
        finally:
            await self._api.close()
            await self._sso.close()

    async def version(self) -> tuple[int, int]:
        """Return the engine's version, such as (4, 5).

        Raises:
            CloudError: The engine gives no usable answer.
        """
        root = await self._read("api.get")
        where = "product_info/version"
        parts = [(root.findtext(f"{where}/{key}") or "").strip() for key in ("major", "minor")]
        if root.tag != "api" or not all(part.isdecimal() for part in parts):
            raise CloudError(
                "ovirt.api.get: the answer is not an engine's: is uri in the cloud-config right?"
            )
        return int(parts[0]), int(parts[1])

    async def found(self) -> list[Machine]:
        """Return all machines that the search of the cloud-config finds.

        Raises:
            CloudError: A page could not be read.
        """

        async def page(marker: str) -> tuple[list[Machine], str]:
            number = int(marker or 1)
            shown = await self._search(page_of(self.search, number))
            return shown, str(number + 1) if len(shown) == PAGE else ""

        # A machine that moves to the next page while they are read is there twice.
        return list({one.id: one for one in await pages("ovirt.vms.list", page)}.values())

    async def by_id(self, ids: Collection[str]) -> dict[str, Machine | None]:
        """Look machines up by their ids, at most `searches.IDS`, whatever the cloud-config says.

        Raises:
            CloudError: The engine gives no usable answer.
        """
        shown = {one.id: one for one in await self._search(with_ids(ids))}
        return {id_: shown.get(id_) for id_ in ids}

    async def machine(self, id_: str) -> Machine | None:
        """Look one machine up by its own URL; None if the engine says that it is not there.

        Raises:
            CloudError: The engine gives no usable answer.
        """
        try:
            root = await self._read("vms.get", id_=id_)
        except Refused as error:
            if error.is_absence:
                return None
            raise
        if root.tag != "vm" or not root.get("id"):
            raise CloudError(
                "ovirt.vms.get: the answer is not the engine's: is uri in the cloud-config right?"
            )
        return machine(root)

    async def listed(self, name: str) -> ET.Element:
        """Return a short list that the engine shows as a whole, such as "clusters.list".

        Raises:
            CloudError: The list could not be read.
        """
        return await self._read(name)

    async def _search(self, search: str) -> list[Machine]:
        query = {"search": search, "max": str(PAGE), "follow": FOLLOW}
        return machines(await self._read("vms.list", query))

    async def _read(
        self, name: str, query: Mapping[str, str] | None = None, id_: str = ""
    ) -> ET.Element:
        return (await self._api.send(_request(name, query, id_=id_))).xml()

    async def _login(self) -> Issued[str]:
        """Have a token issued.

        Raises:
            Unauthenticated: Single sign-on refuses user or password, or has refused them lately.
            CloudError: Single sign-on does not answer, or its answer has another form.
        """
        connection = self._connection
        LOGINS.check(connection.credentials)
        form = {
            "grant_type": "password",
            "scope": _SCOPE,
            "username": connection.username,
            "password": connection.password,
        }
        try:
            said = await self._sso.call(_request("sso.token", form=form), dict[str, Any])
        except Refused as error:
            if error.code not in BAD_CREDENTIALS:
                raise
            text = f"{error}: check username and password in the cloud-config"
            LOGINS.refused(connection.credentials, text)
            raise Unauthenticated(text) from error
        token = said.get("access_token")
        if not isinstance(token, str) or not token:
            raise CloudError("ovirt.sso.token: the answer has no token")
        LOGINS.accepted(connection.credentials)
        self._token = token
        return Issued(token, _end(said.get("exp")))


def _request(
    name: str,
    query: Mapping[str, str] | None = None,
    *,
    form: Mapping[str, str] | None = None,
    timeout: float | None = None,
    id_: str = "",
) -> Request:
    operation = OPERATIONS[name]
    return Request(
        f"ovirt.{name}",
        operation.method,
        operation.path.format(id=id_),
        query or {},
        form_body(form) if form is not None else None,
        # A token that is issued or revoked twice does no harm.
        read=True,
        timeout=timeout,
    )


def _end(milliseconds: object) -> datetime | None:
    """Return when a token ends, if the engine says so: most tokens end when unused for a while."""
    try:
        end = int(str(milliseconds)) / 1000
        found = datetime.fromtimestamp(end, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return found if found.year < _LAST_YEAR else None
