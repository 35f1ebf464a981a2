"""Read everything that the doctor's user may read, and note what that user may not."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from proreus.kube.client import Client
from proreus.kube.errors import Forbidden
from proreus.kube.requests import Resource

T = TypeVar("T")


class Reader:
    """A reader of the API server, which notes the reads that it forbids.

    Attributes:
        client: The client that reads.
        unread: The reads that the API server forbids, each with what was to be read.
    """

    def __init__(self, client: Client) -> None:
        """Read by this client; nothing is unread yet."""
        self.client = client
        self.unread: list[str] = []

    async def optional(self, what: str, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the answer of a read, or None if the API server forbids it.

        Raises:
            KubeError: The API server does not answer, or answers with another error.
        """
        try:
            return await work
        except Forbidden as exc:
            self.unread.append(f"{what}: {exc.message}")
            return None

    async def items(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
    ) -> tuple[T, ...] | None:
        """Return all objects of a kind, or None if they may not be read."""
        listing = await self.optional(
            resource.plural,
            self.client.list(
                resource, namespace, label_selector=label_selector, field_selector=field_selector
            ),
        )
        return None if listing is None else listing.items
