"""The command `proreus demo`: shows the manager at work on a real API server and a simulated cloud.

It plays a story, then leaves the cluster up until Ctrl-C. `proreus demo console` acts in it.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from proreus.testing.controlplane import ControlPlaneError
from proreus.testing.demo import console
from proreus.testing.demo.narrator import Narrator
from proreus.testing.demo.stage import stage
from proreus.testing.demo.story import Story
from proreus.testing.waiting import NotInTime

PROGRAM: Final = Path(sys.executable).parent / "proreus"
_LOG_LINES: Final = 20


def main(arguments: Sequence[str]) -> int:
    """Run the demo, or its console; return 1 if it did not come to its end."""
    if arguments[:1] == [console.COMMAND]:
        return console.main(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="proreus demo",
        description="Show the manager at work on a real API server and a simulated cloud.",
        epilog="`proreus demo console --help` says what can be done in the demo's cluster.",
        allow_abbrev=False,
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="end after the story")
    mode.add_argument("--no-story", action="store_true", help="tell only how nodes join")
    options = parser.parse_args(arguments)
    if sys.platform != "linux":
        print(
            "demo: needs Linux, where every address of 127.0.0.0/8 belongs to the loopback",
            file=sys.stderr,
        )
        return 1
    try:
        return asyncio.run(_demo(once=options.once, story=not options.no_story))
    except ControlPlaneError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


async def _demo(*, once: bool, story: bool) -> int:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    narrator = Narrator()
    play = asyncio.create_task(_play(narrator, once=once, story=story))
    waiting = asyncio.create_task(ended.wait())
    await asyncio.wait({play, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not play.done():
        narrator.say("ending")
        play.cancel()
    waiting.cancel()
    result = (await asyncio.gather(play, return_exceptions=True))[0]
    if isinstance(result, asyncio.CancelledError):
        return 0
    if isinstance(result, BaseException):
        raise result
    return result


async def _play(narrator: Narrator, *, once: bool, story: bool) -> int:
    async with stage(narrator) as scene:
        try:
            tale = Story(scene, narrator)
            await tale.begin()
            if story:
                await tale.tell()
            if not once:
                narrator.say(
                    "the cluster is yours until Ctrl-C; in another terminal:",
                    f"export KUBECONFIG={scene.plane.kubeconfig}",
                    f"export CLOUD_CONFIG={scene.manager.config}",
                    f"export {console.CLOUD_VARIABLE}={scene.cloud.endpoint}",
                )
                narrator.say(
                    "then for example:", f"{PROGRAM} status", f"{PROGRAM} demo console --help"
                )
                await asyncio.Event().wait()
        except NotInTime as error:
            narrator.say(f"the demo has failed: {error}", f"log: {scene.manager.log}")
            lines = scene.manager.log.read_text(errors="replace").splitlines()
            print("\n".join(lines[-_LOG_LINES:]), file=sys.stderr)
            return 1
        finally:
            await scene.manager.stop()
    narrator.say("ended; everything is cleaned up")
    return 0
