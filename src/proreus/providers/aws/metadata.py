"""The instance metadata service: what this machine knows about itself.

Version 2 only, as AWS recommends: a token first, then answers for it. A machine that answers only
version 1, or a pod whose hop limit does not let the answers through, needs what is asked for in
the cloud-config.
"""

import os
from typing import TYPE_CHECKING, Self

import aiohttp

from proreus.cloudprovider.errors import CallTimeout, CloudError

if TYPE_CHECKING:
    from types import TracebackType

    from proreus.cloudprovider.context import Context

DEFAULT_ENDPOINT = "http://169.254.169.254"
"""Where it is on every EC2 instance, at an address of the link."""
_DEADLINE = 5.0
_TOKEN_SECONDS = "300"  # noqa: S105 - for how long a token serves
_NOT_FOUND = 404
_OK = 200


class Metadata:
    """A session with the metadata service; an async context manager.

    The variable AWS_EC2_METADATA_SERVICE_ENDPOINT names another endpoint, as for AWS' SDKs.
    """

    def __init__(self, context: "Context") -> None:
        """Ask nothing yet."""
        endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_ENDPOINT
        self._base = f"{endpoint.rstrip('/')}/latest"
        self._context = context
        self._token = ""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_DEADLINE))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Close it."""
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> str:
        """What stands at a path such as `placement/region`; "" if nothing does.

        Raises:
            CloudError: The service does not answer, or refuses.
        """
        if not self._token:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": _TOKEN_SECONDS}
            self._token = await self._ask("GetToken", "PUT", "api/token", headers)
        headers = {"X-aws-ec2-metadata-token": self._token}
        return await self._ask("GetMetadata", "GET", f"meta-data/{path}", headers)

    async def _ask(self, operation: str, method: str, path: str, headers: dict[str, str]) -> str:
        async def send() -> str:
            session = self._session
            if session is None:
                raise CloudError("the session with the metadata service is not open")
            try:
                async with session.request(
                    method, f"{self._base}/{path}", headers=headers
                ) as response:
                    body = await response.text()
            except TimeoutError as error:
                raise CallTimeout(_unavailable("does not answer")) from error
            except aiohttp.ClientError as error:
                raise CloudError(_unavailable(f"cannot be reached ({error})")) from error
            if response.status == _NOT_FOUND:
                return ""
            if response.status != _OK:
                raise CloudError(_unavailable(f"answers {response.status} to {path}"))
            return body.strip()

        return await self._context.call(
            "imds", operation, send, read=True, deadline=_DEADLINE, quota="imds"
        )


def _unavailable(what: str) -> str:
    return (
        f"the instance metadata service {what}: off EC2, or where pods may not ask it, give"
        " Region, VPC, SubnetID and KubernetesClusterID in the cloud-config"
    )
