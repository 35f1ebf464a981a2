"""HTTP: requests are decoded and answers encoded by botocore's models of the services."""

import asyncio
import functools
import json
import traceback
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from werkzeug.datastructures import MultiDict

from . import elb, elbv2, groups, instances, keys, limits, policy, routes
from .faults import LOST, Failure, Throttle, listed
from .world import AWSError, World

_MODULES = (elb, elbv2, groups, instances, limits, routes)
_SERVICES = {
    ("ec2", "2016-11-15"): "ec2",
    ("elasticloadbalancing", "2012-06-01"): "elb",
    ("elasticloadbalancing", "2015-12-01"): "elbv2",
    ("sts", "2011-06-15"): "sts",
    ("iam", "2010-05-08"): "iam",
}
_THROTTLED = {
    "ec2": AWSError("RequestLimitExceeded", "Request limit exceeded.", 503),
    "elb": AWSError("Throttling", "Rate exceeded", 400),
    "elbv2": AWSError("Throttling", "Rate exceeded", 400),
    "sts": AWSError("Throttling", "Rate exceeded", 400),
}
_TOKEN = "a-token"


class Server:
    """One world on one port."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.app = web.Application(client_max_size=16 << 20)
        self.app.router.add_post("/", self._request)
        self.app.router.add_put("/latest/api/token", self._imds_token)
        self.app.router.add_get("/latest/meta-data/{path:.*}", self._imds)
        self.app.router.add_post("/control/{verb}", self._control)

    async def _request(self, request: web.Request) -> web.Response:
        values = MultiDict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        scope = request.headers.get("Authorization", "").partition("Credential=")[2].split("/")
        region, name = (scope[2], scope[3]) if len(scope) > 4 else ("us-east-1", "")
        operation = values.get("Action", "")
        service = _SERVICES.get((name, values.get("Version", "")))
        world = self._world
        key, source = scope[0], request.headers.get("x-amz-source-arn", "")
        world.signed.append((operation, key, "/".join(scope[2:4]), source))
        if service is None:
            return web.Response(status=404, text=f"no such service: {name} {values.get('Version')}")
        world.calls.append((service, operation))
        await asyncio.sleep(world.faults.delays.get(operation, 0.0))
        world.region = region
        result: Mapping[str, Any] | AWSError
        try:
            result = self._answer(service, operation, values, key)
        except AWSError as error:
            result = error
        except Exception as error:  # noqa: BLE001 - a fault of ours is a test's to see
            traceback.print_exc()
            result = AWSError("StrictLayerFailed", repr(error), 500)
        if isinstance(result, AWSError) and result.code == LOST and request.transport is not None:
            request.transport.close()
        return _encoded(service, operation, result)

    def _answer(self, service: str, operation: str, values: Any, key: str) -> Mapping[str, Any]:
        world = self._world
        if world.faults.is_throttled(operation):
            raise _THROTTLED[service]
        failure = world.faults.failure(operation)
        if failure is not None and not failure.after_effect:
            raise AWSError(failure.code, failure.message, failure.status)
        params = _decoded(service, operation, values)
        if key == keys.KEY:
            policy.check(world, service, operation, params)
        if service == "ec2":
            limits.check(operation, params)
        whole = world.answer(service, operation, params)
        unshown = world.faults.settings.unshown
        answer = listed(f"{service}.{operation}", params, whole, unshown)
        if failure is not None:
            raise AWSError(failure.code, failure.message, failure.status)
        return answer

    async def _imds_token(self, request: web.Request) -> web.Response:
        if "X-aws-ec2-metadata-token-ttl-seconds" not in request.headers:
            return web.Response(status=400)
        return web.Response(text=_TOKEN)

    async def _imds(self, request: web.Request) -> web.Response:
        """Instance metadata service, version 2 only."""
        if request.headers.get("X-aws-ec2-metadata-token") != _TOKEN:
            return web.Response(status=401)
        value = self._world.imds.get(request.match_info["path"])
        return web.Response(status=404) if value is None else web.Response(text=value)

    async def _control(self, request: web.Request) -> web.Response:
        """What tests do to AWS itself."""
        given = await request.json() if request.can_read_body else {}
        world, verb = self._world, request.match_info["verb"]
        answer: Any = {}
        if verb == "reset":
            world.reset()
        elif verb == "configure":
            world.faults.configure(given)
        elif verb == "throttle":
            world.faults.throttles = [msgspec.convert(one, Throttle) for one in given]
        elif verb == "fail":
            world.faults.failures.append(msgspec.convert(given, Failure))
        elif verb == "unspent":
            answer = [one.operation for one in world.faults.failures if one.times > 0]
        elif verb == "delay":
            world.faults.delays = given
        elif verb == "imds":
            world.imds = given
        elif verb == "extra":
            for id_, extra in given.items():
                world.extra.setdefault(id_, {}).update(extra)
        elif verb == "signed":
            answer, world.signed = world.signed, []
        elif verb == "calls":
            answer, world.calls = world.calls, []
        else:
            return web.Response(status=404)
        return web.Response(text=json.dumps(answer), content_type="application/json")


@functools.lru_cache(maxsize=500)
def _model(service: str, operation: str) -> Any:
    return get_service_model(service).operation_model(operation)


def _decoded(service: str, operation: str, values: Any) -> dict[str, Any]:
    model = _model(service, operation)
    parser = PROTOCOL_PARSERS[model.service_model.protocol](model)
    decoded: dict[str, Any] = parser.parse(
        {
            "method": "POST",
            "values": values,
            "headers": {},
            "body": b"",
            "url_path": "/",
            "url_params": {},
        }
    )
    return decoded


def _encoded(service: str, operation: str, result: Mapping[str, Any] | AWSError) -> web.Response:
    if isinstance(result, AWSError):
        return web.Response(
            status=result.status, body=_error(service, result), content_type="text/xml"
        )
    model = _model(service, operation)
    serializer = get_serializer_class(service, model.service_model.protocol)(operation_model=model)
    encoded = serializer.serialize(dict(result))
    return web.Response(
        status=encoded["status_code"], body=encoded["body"], content_type="text/xml"
    )


def _error(service: str, error: AWSError) -> str:
    """The two forms of errors: EC2's, and that of the other services with the query protocol."""
    code, text = _escaped(error.code), _escaped(error.message)
    if service == "ec2":
        return (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{text}</Message></Error>"
            "</Errors><RequestID>0</RequestID></Response>"
        )
    return (
        f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message>"
        "</Error><RequestId>0</RequestId></ErrorResponse>"
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
