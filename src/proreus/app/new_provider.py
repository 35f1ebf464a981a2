"""Write the skeleton of a provider's package: the command `proreus new-provider NAME`.

It installs, runs and says what is not written yet; the conformance suite says what to do next.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from proreus.cloudprovider import available
from proreus.cloudprovider.plugins import GROUP

PROGRAM = "proreus new-provider"

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_NAME = 40
_SUFFIX = ".in"


class Refused(Exception):
    """The error that no package was written; the text says why, and how to mend it."""


def main(arguments: Sequence[str]) -> int:
    """Write the skeleton; return the exit code: 0, or 2 if nothing was written."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Write the skeleton of a cloud provider's package."
    )
    parser.add_argument("name", metavar="NAME", help="the cloud's name, as in --cloud-provider")
    parser.add_argument("--directory", type=Path, help="new folder; by default ./NAME-provider")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as ended:
        return 2 if ended.code else 0
    directory = options.directory or Path(_distribution(options.name))
    try:
        write(options.name, directory)
    except Refused as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    print(f"{directory} is a cloud provider to be written. What to do next:\n")
    print(f"  cd {directory}")
    print("  python -m pip install -e '.[test]'")
    print("  python -m proreus.testing.conformance tests.test_conformance:Cloud")
    return 0


def write(name: str, directory: Path) -> None:
    """Write the skeleton of the provider `name` into a new or empty directory.

    Raises:
        Refused: The name will not do, or the directory is in use or cannot be written.
    """
    _check(name)
    words = {
        "name": name,
        "distribution": _distribution(name),
        "package": f"{name.replace('-', '_')}_provider",
        "class": f"{''.join(part.capitalize() for part in name.split('-'))}Cloud",
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise Refused(f"{directory} is not empty: name another with --directory")
        for path, text in _skeleton():
            target = directory / path.replace("package", words["package"])
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as file:
                file.write(Template(text).substitute(words))
    except OSError as error:
        raise Refused(f"cannot write {error.filename}: {error.strerror}") from error


def _distribution(name: str) -> str:
    """Return the name of the project, and of its directory."""
    return f"{name}-provider"


def _check(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise Refused(
            f"{name!r} cannot be the name of a provider: use small letters, digits, single dashes,"
            f" a letter first, at most {_LONGEST_NAME} characters"
        )
    if name in available():
        packages = (entry.dist.name for entry in entry_points(group=GROUP, name=name) if entry.dist)
        raise Refused(
            f"there is a provider {name!r} already: choose another name, or uninstall"
            f" {next(packages, 'its package')} to begin anew"
        )


def _skeleton() -> Iterator[tuple[str, str]]:
    """Return the files by their path, with placeholders."""
    yield from _files(resources.files("proreus.app") / "skeleton", "")


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield path + entry.name.removesuffix(_SUFFIX), entry.read_text(encoding="utf-8")
