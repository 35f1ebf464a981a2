"""`python -m tests.providers.aws.strict READY`: serve on a free port, write its URL to READY."""

import asyncio
import os
import sys
from pathlib import Path

from aiohttp import web

from .server import Server
from .world import World

_PARENT_POLL = 1.0


async def main(ready: Path) -> None:
    runner = web.AppRunner(Server(World()).app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    partial = ready.with_suffix(".part")
    partial.write_text(f"http://{host}:{port}")
    partial.rename(ready)
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_POLL)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
