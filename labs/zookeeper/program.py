"""Finds ZooKeeper's server: that of Debian's package `zookeeper`, or Maven's in the cache."""

import asyncio
import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from proreus.testing.controlplane.assets import cache, lock
from proreus.testing.controlplane.progress import announced, to_stderr

POM: Final = Path(__file__).with_name("pom.xml")
DEBIAN: Final = Path("/usr/share/java/zookeeper.jar")
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


class NoZooKeeper(Exception):
    """The error when there is neither a server nor what fetches and runs one."""


async def classpath() -> str:
    """Return the class path of the server, fetched if it is not on this machine.

    Raises:
        NoZooKeeper: There is no Java, or no Maven to fetch the server with, or it failed.
    """
    if shutil.which("java") is None:
        raise NoZooKeeper("no `java` on the PATH")
    if DEBIAN.exists():
        return f"{DEBIAN}:/usr/share/java/*"
    place = cache(os.environ, "zookeeper") / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    if not place.exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise NoZooKeeper("neither the Debian package zookeeper nor `mvn` on the PATH")
        place.parent.mkdir(parents=True, exist_ok=True)
        async with lock(place.with_name(f".{place.name}.lock"), to_stderr):
            if not place.exists():
                async with announced(to_stderr, "fetching ZooKeeper, a minute"):
                    await _fetch(maven, place)
    return f"{place}/*"


async def _fetch(maven: str, place: Path) -> None:
    fresh = place.with_name(f"{place.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    process = await asyncio.create_subprocess_exec(
        *(maven, "--batch-mode", "--quiet", "--file", str(POM), COPY),
        f"-DoutputDirectory={fresh}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise NoZooKeeper(f"Maven failed:\n{said.decode(errors='replace')[-2000:]}")
    fresh.rename(place)
