"""Packages that only strangers need: kept in the cache, not in the environment of the tests."""

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from proreus.testing.controlplane.assets import cache, lock


async def installed(name: str, packages: Sequence[str], *options: str) -> Path:
    """The directory with packages, for PYTHONPATH; `options` are pip's."""
    what = hashlib.sha256("\n".join((*packages, *options)).encode()).hexdigest()[:12]
    directory = cache(os.environ, name) / f"{sys.implementation.cache_tag}-{what}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    async with lock(directory.with_suffix(".lock"), print):
        if not directory.exists():
            made = directory.with_suffix(".new")
            shutil.rmtree(made, ignore_errors=True)
            command = (sys.executable, "-m", "pip", "install", "--quiet", *options, "--target")
            done = await asyncio.to_thread(
                subprocess.run, [*command, str(made), *packages], capture_output=True, text=True
            )
            if done.returncode:
                pytest.skip(f"no {', '.join(packages)}: {done.stderr.strip().splitlines()[-1:]}")
            made.rename(directory)
    return directory
