"""The state: moto's backends, what they do not keep, and the table of corrections."""

import itertools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import boto3
from botocore import xform_name
from botocore.exceptions import ClientError, ParamValidationError
from moto import mock_aws
from moto.backends import get_backend
from moto.core.config import default_user_config
from moto.moto_api._internal.models import moto_api_backend

from .faults import Faults

ACCOUNT = "123456789012"

Params = dict[str, Any]
Answer = dict[str, Any]
Handler = Callable[["World", Params], Answer]

CORRECTIONS: dict[tuple[str, str], Handler] = {}


class AWSError(Exception):
    """An answer that is an error."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


def corrects(service: str, *operations: str) -> Callable[[Handler], Handler]:
    """Let a function answer operations in moto's place."""

    def add(handler: Handler) -> Handler:
        for operation in operations:
            CORRECTIONS[service, operation] = handler
        return handler

    return add


class World:
    """All of AWS. `region` and `operation` are those of the request being answered."""

    def __init__(self) -> None:
        default_user_config["core"]["reset_boto3_session"] = False
        self._mock = mock_aws()
        self._mock.start()
        self._clients: dict[tuple[str, str], Any] = {}
        self.region = ""
        self.operation = ""
        self.reset()

    def reset(self) -> None:
        """Everything is gone, and nothing fails."""
        moto_api_backend.reset()
        self.faults = Faults()
        self.numbers = itertools.count(1)
        self.calls: list[tuple[str, str]] = []
        self.signed: list[tuple[str, str, str, str]] = []
        """Of each request its operation, access key, region and service, and source ARN."""
        self.born: dict[str, float] = {}
        """When something was made, by its id or ARN, in seconds of `now`."""
        self.extra: dict[str, dict[str, Any]] = {}
        """What moto does not keep, by id, name or ARN."""
        self.released: dict[str, float] = {}
        """When a load balancer with it was deleted, by the id of a security group."""
        self.imds: dict[str, str] = {}
        """What the metadata service tells, by path."""

    def now(self) -> float:
        return time.monotonic()

    def age(self, id_: str) -> float:
        """For how many seconds something has been there; what nobody made was always there."""
        return self.now() - self.born.get(id_, -math.inf)

    def backend(self, service: str) -> Any:
        """Moto's own state of a service in the region of the request."""
        return get_backend(service)[ACCOUNT][self.region]

    def moto(self, service: str, operation: str, params: Mapping[str, Any] | None = None) -> Answer:
        """What moto answers; AWSError if that is an error."""
        try:
            answer: Answer = getattr(self._client(service), xform_name(operation))(**params or {})
        except ClientError as error:
            said = error.response["Error"]
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            raise AWSError(said["Code"], said.get("Message", ""), status) from error
        except ParamValidationError as error:
            raise AWSError("InvalidParameterValue", str(error)) from error
        answer.pop("ResponseMetadata", None)
        return answer

    def answer(self, service: str, operation: str, params: Params) -> Answer:
        """What AWS would answer."""
        handler = CORRECTIONS.get((service, operation))
        if handler is None:
            return self.moto(service, operation, params)
        self.operation = operation
        return handler(self, params)

    def _client(self, service: str) -> Any:
        key = service, self.region
        if key not in self._clients:
            self._clients[key] = boto3.client(
                service, region_name=self.region, aws_access_key_id="a", aws_secret_access_key="b"
            )
        return self._clients[key]
