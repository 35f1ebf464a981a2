"""Call the leading master: find it, follow redirects to it, ask once more if it is lost."""

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from proreus.cloudprovider.errors import CloudError, ConfigError, Throttled, Unauthenticated
from proreus.cloudprovider.refused import ErrorBody, Refused
from proreus.cloudprovider.requests import Answer, Request, json_body
from proreus.cloudprovider.rest import RestClient, configured_tls
from proreus.providers.mesos.agents import (
    AgentsAnswer,
    FlagsAnswer,
    MasterAnswer,
    Registry,
    cluster_name,
)
from proreus.providers.mesos.config import Client, MesosConfig
from proreus.providers.mesos.masters import Direct, MasterInfo, Place, redirected
from proreus.providers.mesos.operations import (
    API,
    CALLS,
    GET_AGENTS,
    GET_FLAGS,
    GET_MASTER,
    GET_REGISTRY,
    REGISTRY,
)
from proreus.providers.mesos.plan import Proof

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context
    from proreus.providers.mesos.agents import Agent

T = TypeVar("T")

MOST_HOPS: Final = 3
"""Masters that send us on to another one, before they are taken to have no leader."""
_REDIRECT: Final = "redirect"


class Oracle(Protocol):
    """The servers that know the leading master."""

    async def leader(self) -> str:
        """Return the leading master's address."""


class Api:
    """A session with the masters of one cluster, of which one leads."""

    def __init__(
        self, config: MesosConfig, place: Place, oracle: Oracle | None, context: "Context"
    ) -> None:
        """Keep the oracle that finds the leader; send nothing yet.

        Args:
            config: The cloud-config.
            place: The place where masters are found.
            oracle: The client of ZooKeeper, where the leader is found by it.
            context: The framework's gate.

        Raises:
            ConfigError: A file that the cloud-config names cannot be used.
        """
        client = config.client
        self._scheme = "https" if client.tls else "http"
        self._addresses = place.addresses if isinstance(place, Direct) else ()
        self._oracle = oracle
        self._leader = ""
        timeout = config.mesos_cloud.http_client_timeout.total_seconds()
        self._client = RestClient(
            context,
            headers=_credentials(client),
            read_error=_read_error,
            timeout=timeout,
            connect_timeout=timeout,
            tls=configured_tls(
                ca_file=client.ca_file, cert_file=client.cert_file, key_file=client.key_file
            )
            if client.tls
            else None,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def agents(self) -> "tuple[Agent, ...]":
        """Return all agents, in one call.

        Raises:
            CloudError: No leading master gives a usable answer.
        """
        return (await self._call(GET_AGENTS, AgentsAnswer)).get_agents.all()

    async def master(self) -> MasterInfo:
        """Return the leading master.

        Raises:
            CloudError: No leading master gives a usable answer.
        """
        return (await self._call(GET_MASTER, MasterAnswer)).get_master.master_info

    async def cluster(self) -> str:
        """Return the cluster's name.

        Raises:
            CloudError: No leading master gives a usable answer.
        """
        return cluster_name(await self._call(GET_FLAGS, FlagsAnswer))

    async def prove(self) -> Proof:
        """Return what the master that leads now tells about agents, all of it from that one master.

        The known leader does not count: it may have been cut off from the others.

        Raises:
            CloudError: The master gives no usable answer, or another one leads by now.
        """
        leader, who = await self._ask(GET_MASTER, MasterAnswer, is_known=False)
        listed = await self._post(leader, GET_AGENTS, AgentsAnswer)
        registry = await self._registry(leader)
        return Proof(who.get_master.master_info, listed.get_agents.all(), registry)

    async def _registry(self, leader: str) -> Registry:
        request = Request(f"mesos.{GET_REGISTRY}", "GET", f"{self._scheme}://{leader}{REGISTRY}")
        try:
            return await self._client.call(request, Registry)
        except (Unauthenticated, Refused) as error:
            raise CloudError(
                "only the registry tells what became of agents that are not listed, and the master"
                f" does not show it: {error}; let the principal read {REGISTRY}"
            ) from error

    async def _call(self, type_: str, form: type[T]) -> T:
        """Call the leading master, wherever it is."""
        _, answer = await self._ask(type_, form)
        return answer

    async def _ask(self, type_: str, form: type[T], *, is_known: bool = True) -> tuple[str, T]:
        """Call the leading master, wherever it is; return its address too, which is remembered.

        The leader that was known before is not forgotten for a failure: it may be all that is left
        while ZooKeeper does not answer.

        Args:
            type_: The type of the call.
            form: The type that the answer is decoded to.
            is_known: Whether to use the leader's address that is known already.
        """
        failed: CloudError | None = None
        tried: set[str] = set()
        async with aclosing(self._candidates(is_known=is_known)) as candidates:
            async for address in candidates:
                if address in tried:
                    continue
                try:
                    leader, answer = await self._follow(address, type_, form, tried)
                except (Throttled, Unauthenticated):
                    raise
                except CloudError as error:
                    failed = error
                else:
                    self._leader = leader
                    return leader, answer
        raise failed or CloudError("no master leads")

    async def _candidates(self, *, is_known: bool) -> AsyncGenerator[str, None]:
        """Return addresses where the leader may be: the one that is known, then those found."""
        if is_known and self._leader:
            yield self._leader
        if self._oracle is not None:
            yield await self._oracle.leader()
        for address in self._addresses:
            yield address

    async def _follow(
        self, address: str, type_: str, form: type[T], tried: set[str]
    ) -> tuple[str, T]:
        """Call a master, or the masters to which it redirects."""
        for _ in range(MOST_HOPS):
            tried.add(address)
            try:
                return address, await self._post(address, type_, form)
            except Refused as error:
                if error.code != _REDIRECT:
                    raise
                address = redirected(error.text, scheme=self._scheme, path=API)
                if address in tried:
                    break
        raise CloudError(f"mesos.{type_}: no master leads: each sends us to another one")

    async def _post(self, address: str, type_: str, form: type[T]) -> T:
        if type_ not in CALLS:
            raise LookupError(f"{type_} is not in the table of calls")
        request = Request(
            f"mesos.{type_}",
            "POST",
            f"{self._scheme}://{address}{API}",
            body=json_body({"type": type_}),
            read=True,
        )
        return await self._client.call(request, form)


def _read_error(answer: Answer) -> ErrorBody | None:
    """Read the redirect of a master that does not lead; other errors are plain texts."""
    if answer.status == HTTPStatus.TEMPORARY_REDIRECT:
        return ErrorBody(_REDIRECT, answer.headers.get("Location", ""))
    return None


def _credentials(client: Client) -> dict[str, str]:
    """Return the header that says which principal we are (RFC 7617).

    Raises:
        ConfigError: The file of the secret cannot be read.
    """
    if not client.principal:
        return {}
    try:
        secret = Path(client.secret_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError((f"[Client] secret-file: {client.secret_file}: {reason}",)) from error
    if not secret:
        raise ConfigError((f"[Client] secret-file: {client.secret_file}: is empty",))
    token = base64.b64encode(f"{client.principal}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {token}"}
