"""Builds `vcsim`, the simulator with a hand on its machines, with Go into the cache."""

import hashlib
import os
import platform
import shutil
from pathlib import Path
from typing import Final

from proreus.testing.controlplane.assets import cache, lock
from proreus.testing.controlplane.build import run
from proreus.testing.controlplane.progress import announced, to_stderr

SOURCE: Final = Path(__file__).with_name("vcsim")


class NoGo(Exception):
    """The error when there is no Go to build with."""


async def program() -> Path:
    """Return the program, built if its source is new here; some minutes the first time.

    Raises:
        NoGo: There is no Go on the PATH.
        ControlPlaneError: The build failed.
    """
    state = hashlib.sha256()
    for file in sorted(SOURCE.iterdir()):
        state.update(file.name.encode() + b"\0" + file.read_bytes())
    machine = f"{platform.system()}-{platform.machine()}".lower()
    place = cache(os.environ, "vcsim") / f"{state.hexdigest()[:16]}-{machine}"
    built = place / "vcsim"
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise NoGo("no `go` on the PATH: install Go 1.25 or newer")
    place.mkdir(parents=True, exist_ok=True)
    async with lock(place.with_name(f".{place.name}.lock"), to_stderr):
        if not built.exists():
            fresh = place / "vcsim.new"
            flags = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
            async with announced(to_stderr, "building vcsim, 2 minutes"):
                await run((go, "build", *flags, "-o", str(fresh), "."), SOURCE, os.environ)
            fresh.rename(built)
    return built
