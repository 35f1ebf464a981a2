"""Serve the state: /status for people, /status.json for programs."""

import secrets

import msgspec
from aiohttp import web

from proreus.app.status import page
from proreus.app.status.source import Source


def add(app: web.Application, source: Source) -> None:
    """Add /status and /status.json to an application, whose middlewares decide who may see them."""

    async def show(_: web.Request) -> web.Response:
        nonce = secrets.token_urlsafe(16)
        policy = page.CONTENT_SECURITY_POLICY.format(nonce=nonce)
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
        return web.Response(text=page.html(nonce), content_type="text/html", headers=headers)

    async def as_json(_: web.Request) -> web.Response:
        body = msgspec.json.encode(source.summary())
        headers = {"Cache-Control": "no-store"}
        return web.Response(body=body, content_type="application/json", headers=headers)

    app.router.add_get("/status", show)
    app.router.add_get("/status.json", as_json)
