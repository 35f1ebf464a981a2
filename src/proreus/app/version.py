"""Print the version."""

import json
import platform

from proreus import __version__


def raw() -> str:
    """Return what `--version=raw` prints, in the form of Go's `version.Info`."""
    major, minor, *_ = __version__.split(".")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    compiler = f"{platform.python_implementation()} {platform.python_version()}"
    fields = {
        "Major": major,
        "Minor": minor,
        "GitVersion": f"v{__version__}",
        "GitCommit": "",
        "GitTreeState": "",
        "BuildDate": "",
        "GoVersion": "",
        "Compiler": compiler,
        "Platform": f"{platform.system().lower()}/{machine}",
    }
    text = ", ".join(f"{name}:{json.dumps(value)}" for name, value in fields.items())
    return f"version.Info{{{text}}}"
