"""Find the IP address of an agent: as it says itself, or by DNS from its host name."""

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.errors import CloudError
from proreus.providers.mesos.agents import Agent, NoSuchHost, own_address
from proreus.providers.mesos.config import AddressSource

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

_NONE: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""What it is called that DNS has no such name, or no address of it."""
AGE: Final = 60.0
"""Seconds that an address of DNS serves."""


class Addresses:
    """The addresses of agents."""

    def __init__(self, source: AddressSource, context: "Context", *, timeout: float) -> None:
        """Keep the source of addresses.

        Args:
            source: The source of addresses: the agents, or DNS.
            context: The framework's gate.
            timeout: Seconds to wait for an answer of DNS.
        """
        self._is_dns = source is AddressSource.DNS
        self._context = context
        self._timeout = timeout
        self._known: dict[str, tuple[float, str]] = {}

    async def of(self, agent: Agent) -> str:
        """Return the address of an agent; "" if it does not say.

        Raises:
            CloudError: DNS does not know its host name, or does not answer.
        """
        host = agent.agent_info.hostname
        if not self._is_of_dns(host):
            return own_address(agent)
        since, address = self._known.get(host, (0.0, ""))
        if not address or since + AGE < asyncio.get_running_loop().time():
            (address, *_) = await self._looked_up(host)
        return address

    async def every(self, agent: Agent) -> tuple[str, ...]:
        """Return all addresses that the Node of an agent may have; DNS is asked anew.

        Of several that a host has each comes first some day, and is its Node's then.

        Raises:
            CloudError: DNS does not know its host name, or does not answer.
        """
        host = agent.agent_info.hostname
        if self._is_of_dns(host):
            return await self._looked_up(host)
        address = own_address(agent)
        return (address,) if address else ()

    def _is_of_dns(self, host: str) -> bool:
        return self._is_dns and not is_address(host)

    async def _looked_up(self, host: str) -> tuple[str, ...]:
        """Return the addresses of a host; the first one is that of its Node, as officially."""
        now = asyncio.get_running_loop().time()
        found = await self._context.call(
            "dns", "lookup", lambda: _looked_up(host), read=True, blocking=True,
            deadline=self._timeout,
        )  # fmt: skip
        self._known[host] = (now, found[0])
        return found


def _looked_up(host: str) -> tuple[str, ...]:
    """Return the addresses of a host in the order of DNS; blocks.

    Raises:
        NoSuchHost: DNS does not know it.
        CloudError: DNS does not answer.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        refusal = NoSuchHost if error.errno in _NONE else CloudError
        raise refusal(
            f"dns.lookup: {host}: {error.strerror}: let the manager resolve the host names of"
            " agents, or set [Nodes] addresses = agent in the cloud-config"
        ) from error
    return tuple(str(one[4][0]) for one in found)
