"""The chart's roles, what is made from it (README, `deploy/*.yaml`), and the rights in clouds.

`write` makes the files, `check` says which of them are out of date, and `programs` prints the
directory of the Go programs that render charts and read Prometheus rules (`tools/gotools`). Those
are built with Go into the cache, once for each state of their source.
"""

import argparse
import asyncio
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import yaml

from proreus.app.cli import main as main_of_proreus
from proreus.app.webhooks import WEBHOOKS
from proreus.controllers.table import CONTROLLERS
from proreus.testing.controlplane import ControlPlaneError
from proreus.testing.controlplane.assets import cache, lock
from proreus.testing.controlplane.build import run
from proreus.testing.controlplane.progress import announced

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "charts" / "cloud-controller-manager"
RIGHTS: Final = {
    ROOT / "deploy" / "aws" / "iam-policy.json": "aws_policy.py",
    ROOT / "deploy" / "azure" / "role.json": "azure_role.py",
    ROOT / "deploy" / "baidu" / "policy.json": "baidu_policy.py",
    ROOT / "deploy" / "cloudstack" / "role.csv": "cloudstack_role.py",
    ROOT / "deploy" / "gce" / "role.yaml": "gce_role.py",
}
"""What clouds let the manager do, and the tools that print it."""
SOURCE: Final = ROOT / "tools" / "gotools"
PROGRAMS: Final = ("chart", "queries", "rules")
NAMESPACE: Final = "kube-system"
OF_NAMESPACES: Final = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}
"""The rule for the labels of namespaces, which few cloud-configs need."""
GENERATED: Final = "# Made by `make manifests`: change the source named here, not this file.\n"

_KEY = re.compile(r"( *)([A-Za-z]\w*):(.*)")


def report(line: str) -> None:
    """Tell the person who waits."""
    print(f"manifests: {line}", file=sys.stderr, flush=True)


async def programs() -> Path:
    """Return the directory of the Go programs, built if need be; about two minutes the first time.

    Raises:
        ControlPlaneError: There is no Go, or the build failed.
    """
    state = hashlib.sha256()
    for file in sorted(SOURCE.rglob("*.*")):
        state.update(file.relative_to(SOURCE).as_posix().encode() + b"\0" + file.read_bytes())
    machine = f"{platform.system()}-{platform.machine()}".lower()
    place = cache(os.environ, "tools") / f"{state.hexdigest()[:16]}-{machine}"
    if all((place / name).exists() for name in PROGRAMS):
        return place
    go = shutil.which("go")
    if go is None:
        raise ControlPlaneError("no `go` on the PATH: install Go 1.26 or newer")
    place.parent.mkdir(parents=True, exist_ok=True)
    async with lock(place.with_name(f".{place.name}.lock"), report):
        if not place.exists():
            fresh = place.with_name(f".{place.name}.new")
            shutil.rmtree(fresh, ignore_errors=True)  # of a process that was killed
            fresh.mkdir()
            flags = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
            async with announced(report, "building the programs for charts and rules, 2 minutes"):
                await run((go, "build", *flags, "-o", f"{fresh}/", "./..."), SOURCE, os.environ)
            fresh.rename(place)
    return place


def printed_rights(tool: str) -> str:
    """Return what a tool prints that writes the rights in a cloud."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / tool],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def printed_roles(*given: str) -> list[dict[str, Any]]:
    """Return what `proreus roles` prints with these flags."""
    return _printed("roles", *given)


def _printed(*command: str) -> list[dict[str, Any]]:
    with redirect_stdout(io.StringIO()) as printed:
        if code := main_of_proreus(command):
            raise SystemExit(code)
    return list(yaml.safe_load_all(printed.getvalue()))


def with_leases_of(objects: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Let the roles hold the leases, too, that the same roles hold in another list."""
    rules = {
        one["metadata"]["name"]: rule
        for one in others
        for rule in one.get("rules", ())
        if "leases" in rule["resources"] and "resourceNames" in rule
    }
    for one in objects:
        for rule in one.get("rules", ()):
            if "leases" in rule["resources"] and "resourceNames" in rule:
                more = rules[one["metadata"]["name"]]["resourceNames"]
                rule["resourceNames"] = sorted({*rule["resourceNames"], *more})


def added(rules: Iterable[Any], before: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Return the rules that were not there before, with the names of objects that are new."""
    for rule in rules:
        same = [it for it in before if {**it, "resourceNames": 0} == {**rule, "resourceNames": 0}]
        names = {name for it in same for name in it.get("resourceNames", ())}
        if new := [name for name in rule.get("resourceNames", ()) if name not in names]:
            yield {**rule, "resourceNames": new}
        elif not same:
            yield rule


def what_is_more(
    objects: list[dict[str, Any]], more: list[dict[str, Any]], suffix: str
) -> list[dict[str, Any]]:
    """Return the roles and bindings of another list that add to the roles of the first one.

    A role that is in both is in the answer with the rules that only the second has, and its name
    has the suffix.
    """
    known = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    found = []
    for one in more:
        if (before := known.get((one["kind"], one["metadata"]["name"]))) is None:
            found.append(one)
        elif rules := [*added(one.get("rules", ()), before.get("rules", ()))]:
            meta = {**one["metadata"], "name": f"{one['metadata']['name']}:{suffix}"}
            found.append({**one, "metadata": {**meta}, "rules": rules})
            (binding,) = [
                it
                for it in more
                if it.get("roleRef", {}).get("name") == one["metadata"]["name"]
                and it["kind"] == f"{one['kind']}Binding"
            ]
            ref = {**binding["roleRef"], "name": meta["name"]}
            found.append({**binding, "metadata": meta, "roleRef": ref})
    return found


def without(objects: list[dict[str, Any]], rule: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the roles and bindings without that rule."""
    return [
        {**one, "rules": [it for it in one["rules"] if it != rule]} if "rules" in one else one
        for one in objects
    ]


def roles() -> str:
    """Return the file from which the chart makes its roles.

    For one account, and one for each controller; and what each opt-in controller, each webhook,
    and a cloud-config by which namespaces are read, needs besides.

    They suffice for every way of election, since a chart does not know which will be asked for.
    """
    found: dict[str, Any] = {}
    opt_in: dict[str, Any] = {}
    for name, flags in {"together": (), "apart": ("--use-service-account-credentials",)}.items():
        whole = printed_roles("--leader-elect-per-controller", *flags)
        found[name] = without(whole, OF_NAMESPACES)
        for one in CONTROLLERS:
            if one.opt_in:
                chosen = f"--controllers=*,{one.name}"
                more = printed_roles("--leader-elect-per-controller", chosen, *flags)
                place = opt_in.setdefault(one.alias, {"name": one.name})
                place[name] = what_is_more(whole, more, one.alias)
        with_leases_of(found[name], printed_roles("--enable-leader-migration", *flags))
    found["opt-in"] = opt_in
    whole = printed_roles()
    found["namespaces"] = what_is_more(without(whole, OF_NAMESPACES), whole, "namespaces")
    found["webhooks"] = {
        name: what_is_more(whole, printed_roles(f"--webhooks={name}"), name) for name in WEBHOOKS
    }
    source = "roles that `proreus roles` prints"
    return GENERATED.replace("source named here", source) + yaml.safe_dump(found, sort_keys=False)


def speaker_roles() -> str:
    """Return the file from which the chart makes the role of BGP speakers."""
    printed = {"objects": _printed("bgp-speaker", "--roles")}
    source = "role that `proreus bgp-speaker --roles` prints"
    return GENERATED.replace("source named here", source) + yaml.safe_dump(printed, sort_keys=False)


def rendered(program: Path, values: Path) -> str:
    """Return the manifests of the chart with a file of values.

    Raises:
        subprocess.CalledProcessError: The chart refuses the values.
    """
    with values.open("rb") as file:
        done = subprocess.run(
            [program, "render", CHART, NAMESPACE],
            check=True,
            stdin=file,
            stdout=subprocess.PIPE,
            text=True,
        )
    source = f"chart, or {values.relative_to(ROOT)}"
    return GENERATED.replace("source named here", source) + done.stdout


def documented(text: str) -> Iterator[tuple[str, str]]:
    """Return the keys of a values file that have a comment just above them, and the comment."""
    path = list[str]()
    comment = list[str]()
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip(" #"))
        elif found := _KEY.match(line):
            indent, key, _ = found.groups()
            path[len(indent) // 2 :] = [key]
            if comment:
                yield ".".join(path), " ".join(comment)
            comment = []
        else:
            comment = []


def value_at(values: Any, path: str) -> Any:
    """Return the value at a path of keys."""
    for key in path.split("."):
        values = values[key]
    return values


def readme() -> str:
    """Return the README of the chart, with the table of its values."""
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    rows = ["| value | default | what it is |", "|---|---|---|"]
    for path, meaning in documented(text):
        default = json.dumps(value_at(values, path), ensure_ascii=False)
        if len(default) > 60:  # noqa: PLR2004  # what a table can bear
            default = "see values.yaml"
        rows.append(f"| `{path}` | `{default}` | {meaning} |")
    return (CHART / "README.md.in").read_text().replace("@VALUES@", "\n".join(rows))


async def everything() -> dict[Path, str]:
    """Return what is generated: files and their contents."""
    program = await programs() / "chart"
    files = {CHART / "README.md": readme()}
    for values in sorted((ROOT / "deploy" / "values").glob("*.yaml")):
        files[ROOT / "deploy" / values.name] = rendered(program, values)
    return files


def put(files: Mapping[Path, str], *, write: bool) -> list[Path]:
    """Return the files that differ from what they should be; `write` writes them."""
    stale = [
        file for file, content in files.items() if not file.exists() or file.read_text() != content
    ]
    for file in stale if write else ():
        file.parent.mkdir(exist_ok=True)
        file.write_text(files[file])
    return stale


async def main() -> int:
    """Do what the command line says; answers the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["write", "check", "programs"])
    what: str = parser.parse_args().what
    try:
        if what == "programs":
            print(await programs())
            return 0
        write = what == "write"
        first = {file: printed_rights(tool) for file, tool in RIGHTS.items()}
        first[CHART / "files" / "roles.yaml"] = roles()
        first[CHART / "files" / "bgp-speaker-roles.yaml"] = speaker_roles()
        stale = put(first, write=write)  # first of all: the chart is rendered with the roles
        stale += put(await everything(), write=write)
    except ControlPlaneError as error:
        report(f"error: {error}")
        return 1
    for file in stale:
        state = "written" if what == "write" else "out of date: run `make manifests`"
        report(f"{file.relative_to(ROOT)}: {state}")
    return 1 if stale and what == "check" else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
