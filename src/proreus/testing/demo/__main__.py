"""`make demo`: plays the story, then leaves the cluster up until Ctrl-C."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from proreus.testing.controlplane import ControlPlaneError
from proreus.testing.demo.console import CLOUD_VARIABLE
from proreus.testing.demo.narrator import Narrator, Timeout
from proreus.testing.demo.stage import stage
from proreus.testing.demo.story import Story

LOG_LINES = 20
BIN = Path(sys.executable).parent
CONSOLE = f"{sys.executable} -m proreus.testing.demo.console"


def main() -> int:
    """Run the demo; 1 if the story did not come to its end."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__, allow_abbrev=False)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="end after the story")
    mode.add_argument("--no-story", action="store_true", help="end with the nodes' routes")
    options = parser.parse_args()
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
                    f"export {CLOUD_VARIABLE}={scene.cloud.endpoint}",
                )
                narrator.say("then for example:", f"{BIN}/proreus status", f"{CONSOLE} --help")
                await asyncio.Event().wait()
        except Timeout as error:
            narrator.say(f"the demo has failed: {error}", f"log: {scene.manager.log}")
            lines = scene.manager.log.read_text(errors="replace").splitlines()
            print("\n".join(lines[-LOG_LINES:]), file=sys.stderr)
            return 1
        finally:
            await scene.manager.stop()
    narrator.say("ended; everything is cleaned up")
    return 0


if __name__ == "__main__":
    sys.exit(main())
