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

    async def of(self, agent: Agent, *, anew: bool = False) -> str:
        """Return the address of an agent; "" if it does not say.

        Args:
            agent: The agent.
            anew: Whether what DNS has said before does not count.

        Raises:
            CloudError: DNS does not know its host name, or does not answer.
        """
        host = agent.agent_info.hostname
        if not self._is_dns or is_address(host):
            return own_address(agent)
        now = asyncio.get_running_loop().time()
        since, address = self._known.get(host, (0.0, ""))
        if anew or not address or since + AGE < now:
            address = await self._context.call(
                "dns", "lookup", lambda: _looked_up(host), read=True, blocking=True,
                deadline=self._timeout,
            )  # fmt: skip
            self._known[host] = (now, address)
        return address


def _looked_up(host: str) -> str:
    """Return the first address of a host, as officially; blocks.

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
    return str(found[0][4][0])
