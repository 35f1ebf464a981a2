"""Ask ZooKeeper which master leads, in a session of its own for each question.

The answer is needed at the start, when the leader that is known does not answer, and before a
machine counts as gone. A session that lasted would have to be kept alive and to be made anew
when it expires, all for a leader that changes once in months.
"""

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError

from proreus.cloudprovider.errors import CallTimeout, CloudError, Unauthenticated
from proreus.providers.mesos.masters import Quorum, address_in, leading

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

TRIES: Final = 3
"""Reads of the list of masters, where the leader leaves between this and its description."""

_UNSETTLED: Final = (ConnectionLoss, SessionExpiredError)
"""Errors after which nothing is known, and the same can be asked again."""

_SILENT: Final = logging.getLogger(f"{__name__}.silent")
"""For kazoo, which writes requests to its log, credentials among them."""
_SILENT.setLevel(logging.CRITICAL + 1)


class ZooKeeper:
    """The servers that know the leading master."""

    def __init__(self, quorum: Quorum, context: "Context", *, timeout: float) -> None:
        """Keep the servers' addresses; connect with the first question.

        Args:
            quorum: The servers of ZooKeeper.
            context: The framework's gate.
            timeout: Seconds for a session, and for an answer in it.
        """
        self._quorum = quorum
        self._context = context
        self._timeout = timeout

    async def leader(self) -> str:
        """Return the address of the leading master, `host:port`.

        Raises:
            CloudError: No master leads, or ZooKeeper gives no usable answer.
        """
        return await self._context.call(
            "zookeeper",
            "leader",
            self._read,
            read=True,
            blocking=True,
            # A session, its requests, its end: each may take as long as an answer.
            deadline=3 * self._timeout,
        )

    def _read(self) -> str:
        """Read the leader in a session of its own; blocks."""
        credentials = self._quorum.credentials
        client = KazooClient(
            hosts=",".join(self._quorum.hosts),
            timeout=self._timeout,
            auth_data=[("digest", credentials)] if credentials else None,
            logger=_SILENT,
        )
        try:
            client.start(timeout=self._timeout)
            return self._leader_in(client)
        except (KazooTimeoutError, OperationTimeoutError) as error:
            raise CallTimeout(f"zookeeper.leader: no answer of {self._servers}") from error
        except _UNSETTLED as error:
            raise CloudError(
                f"zookeeper.leader: the session with {self._servers} was lost"
                f" ({type(error).__name__})"
            ) from error
        except KazooException as error:
            raise self._refusal(error) from error
        finally:
            # Of the end nothing is wanted; a server that hangs does not confirm it either.
            with contextlib.suppress(KazooException):
                client.stop()
            client.close()

    def _leader_in(self, client: Any) -> str:
        path = self._quorum.path
        for _ in range(TRIES):
            children = client.get_children_async(path).get(timeout=self._timeout)
            name = leading(children)
            if name is None:
                break
            try:
                content, _ = client.get_async(f"{path}/{name}").get(timeout=self._timeout)
            except NoNodeError:
                continue  # It has just ended; another one leads.
            return address_in(content)
        raise CloudError(f"no master leads: ZooKeeper ({self._servers}) has none below {path}")

    def _refusal(self, error: KazooException) -> CloudError:
        what = f"zookeeper.leader: {self._servers}: {type(error).__name__}"
        if isinstance(error, NoNodeError):
            return CloudError(
                f"{what}: there is no {self._quorum.path}: is the path in mesos-master that of"
                " the masters' --zk?"
            )
        if "Auth" in type(error).__name__:
            return Unauthenticated(
                f"{what}: {self._quorum.path} cannot be read: give user and password in"
                " mesos-master, zk://user:password@host:2181/mesos"
            )
        return CloudError(what)

    @property
    def _servers(self) -> str:
        return ", ".join(self._quorum.hosts)
