"""The image of the manager that pods run: the Dockerfile's, or one that stands in for it.

`$PROREUS_IMAGE` names an archive of the Dockerfile's, as `docker save` writes it. Without it the
image is made of the Python and the packages that run the tests, since to build the Dockerfile takes
a base image.
"""

import importlib.metadata
import json
import os
import re
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

import proreus
from labs.cluster.images import Root, pack

NAME = "localhost/proreus:test"
PROGRAM = "cloud-controller-manager"
PACKAGES = "/opt/proreus/packages"
UNUSED = shutil.ignore_patterns(
    "test", "tests", "site-packages", "dist-packages", "idlelib", "tkinter", "ensurepip", "config-*"
)


def manager_image(place: Path) -> tuple[Path, str]:
    """The archive of the image, and the image's name."""
    if given := os.environ.get("PROREUS_IMAGE"):
        with tarfile.open(given) as archive:
            manifest = archive.extractfile("manifest.json")
            assert manifest is not None
            (image,) = json.load(manifest)
        (name,) = image["RepoTags"]
        return Path(given), name
    return _stand_in(place), NAME


def _stand_in(place: Path) -> Path:
    root = Root(place / "manager")
    interpreter = Path(sys.executable).resolve()
    root.program(interpreter, str(interpreter))
    library = Path(sysconfig.get_path("stdlib")).resolve()
    shutil.copytree(library, below(root, str(library)), ignore=UNUSED, dirs_exist_ok=True)
    for distribution in needed("proreus"):
        for file in distribution.files or ():
            if ".." not in file.parts:
                root.copy(Path(str(file.locate())), f"{PACKAGES}/{file}")
    # Its distribution is installed as a link to the source.
    source = Path(proreus.__file__).parent
    shutil.copytree(source, below(root, f"{PACKAGES}/proreus"), dirs_exist_ok=True)
    root.libraries(sorted(root.path.rglob("*.so")))
    for name in ("nft", "ip"):
        root.program(Path(shutil.which(name) or name), f"/usr/sbin/{name}")
    root.copy(Path("/etc/protocols"), "/etc/protocols")  # nft looks names up in it
    start = below(root, f"/usr/bin/{PROGRAM}")
    start.write_text(
        f"#!{interpreter}\nfrom proreus.app.cli import cloud_controller_manager as main\n"
        "import sys\nsys.exit(main())\n"
    )
    start.chmod(0o755)
    archive = place / "manager.tar"
    environ = {"PYTHONPATH": PACKAGES, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    pack(root.path, [NAME], archive, entrypoint=[PROGRAM], environ=environ)
    return archive


def below(root: Root, path: str) -> Path:
    return root.path / path.lstrip("/")


def needed(name: str, seen: set[str] | None = None) -> Iterator[importlib.metadata.Distribution]:
    """A package and what it needs to run."""
    seen = set() if seen is None else seen
    seen.add(name)
    distribution = importlib.metadata.distribution(name)
    yield distribution
    for requirement in distribution.requires or ():
        other = re.match(r"[\w.-]+", requirement)
        optional = re.search(r"extra == ['\"](?P<extra>[^'\"]+)", requirement)
        wanted = optional is None or (name == "proreus" and optional["extra"] == "local")
        if other is None or other[0].lower() in seen or not wanted:
            continue
        try:
            yield from needed(other[0].lower(), seen)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another version of Python
