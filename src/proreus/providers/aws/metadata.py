"""Read the instance metadata service: what this machine knows about itself.

Version 2 only, as AWS recommends: a token first, then answers for it. A machine that answers only
version 1, or a pod whose hop limit does not let the answers through, needs what is asked for in
the cloud-config.
"""

import os
from typing import TYPE_CHECKING, Self

from proreus.cloudprovider.credential import Credential, Issued
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.requests import Request
from proreus.cloudprovider.rest import RestClient

if TYPE_CHECKING:
    from types import TracebackType

    from proreus.cloudprovider.context import Context

DEFAULT_ENDPOINT = "http://169.254.169.254"
"""The URL of the service on every EC2 instance, at an address of the link."""
_DEADLINE = 5.0
_LIFETIME = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
_NOT_FOUND = 404


class Metadata:
    """A session with the metadata service; an async context manager.

    The variable AWS_EC2_METADATA_SERVICE_ENDPOINT names another endpoint, as for AWS' SDKs.
    """

    def __init__(self, context: "Context") -> None:
        """Keep the context; ask nothing yet."""
        endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_ENDPOINT
        base = f"{endpoint.rstrip('/')}/latest"
        token = Credential(
            self._issue,
            now=context.now,
            headers=lambda token: {"X-aws-ec2-metadata-token": token},
        )
        self._tokens = RestClient(context, base, timeout=_DEADLINE, proxies=False)
        self._rest = RestClient(context, base, credential=token, timeout=_DEADLINE, proxies=False)

    async def __aenter__(self) -> Self:
        """Open nothing before the first request."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Close the connections."""
        await self._rest.close()
        await self._tokens.close()

    async def get(self, path: str) -> str:
        """Return the value at a path such as `placement/region`; "" if there is none.

        Raises:
            CloudError: The service does not answer, or refuses.
        """
        request = Request("imds.GetMetadata", "GET", f"meta-data/{path}", quota="imds")
        try:
            return (await self._rest.send(request)).text().strip()
        except CloudError as error:
            if isinstance(error, Refused) and error.status == _NOT_FOUND:
                return ""
            raise CloudError(
                f"the instance metadata service: {error}: off EC2, or where pods may not ask it,"
                " give Region, VPC, SubnetID and KubernetesClusterID in the cloud-config"
            ) from error

    async def _issue(self) -> Issued[str]:
        request = Request(
            "imds.GetToken", "PUT", "api/token", headers=_LIFETIME, read=True, quota="imds"
        )
        return Issued((await self._tokens.send(request)).text())
