"""The long stages: what each proves, which of them a change makes due, and a limit for each.

`make test-all` runs all of them. CI (`--ci`) has not the time: it runs the stages whose code has
changed since they last passed on this machine, then some of the rest, in an order that turns with
the commit, and begins none that could outlive the deadline. A stage that is not reached stays due,
so every stage runs within a few commits.

A stage that reaches its limit has failed; the limit is three times what it usually takes on two
processors. One that lacks something on this machine (root, packages, memory) ends with the exit
code 77, is passed by, and is counted in the last line.
"""

import argparse
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from proreus.testing.controlplane.assets import cache

ROOT: Final = Path(__file__).parents[1]
LACKING: Final = 77
"""Exit code of a stage that lacks something on this machine, as automake has it."""
GRACE: Final = 60.0
"""Seconds that a stage has to clean up after its limit, before it is killed."""
PREPARING: Final = 600
"""Seconds that a stage may take to get its programs; it is passed by without them."""
PREPARED: Final = 60
"""Seconds that it takes at most to find them all there, as on a machine that had them before."""
ROTATING: Final = 600
"""Seconds of stages that no change made due, in one run of CI."""

FLOOR: Final = (
    *("src/proreus/kube", "src/proreus/runtime", "src/proreus/cloudprovider"),
    *(
        "src/proreus/containment",
        "src/proreus/serving",
        "src/proreus/controllers",
        "src/proreus/app",
    ),
    *("src/proreus/testing", "labs/forks.py", "labs/forkserver.py", "pyproject.toml"),
)
"""What every stage stands on."""


class Stage(NamedTuple):
    """A long stage of tests.

    Attributes:
        name: What it is called on the command line.
        proves: What is known when it has passed.
        command: The program and its arguments, at the root of the repository.
        usual: Seconds that it takes on two processors.
        own: Paths whose change makes it due first; one below `FLOOR` makes it due after those.
        prepare: A command that gets what it needs, such as programs that Go builds; not part of
            its time.
        ci: Whether CI runs it: True once its usual time has been measured with the code as it is,
            and three times that fits into CI.
    """

    name: str
    proves: str
    command: tuple[str, ...]
    usual: int
    own: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    ci: bool = False

    @property
    def limit(self) -> int:
        """Seconds after which it has failed."""
        return 3 * self.usual

    @property
    def room(self) -> int:
        """Seconds that must be left for it to begin; what is beyond may go into its programs."""
        return self.limit + (PREPARED if self.prepare else 0)


class Outcome(Enum):
    """The result of a stage."""

    PASSED = "passed"
    FAILED = "FAILED"
    LATE = "FAILED: it reached its limit"
    PASSED_BY = "passed by"


PYTHON: Final = sys.executable


def tests(*arguments: str) -> tuple[str, ...]:
    """Long tests, on as many workers as there are processors."""
    crowd = ("--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder", "-q")
    return (PYTHON, "tools/attempt.py", "-m", "long", *crowd, *arguments)


def _files(folder: str, pattern: str) -> tuple[str, ...]:
    return tuple(sorted(str(file.relative_to(ROOT)) for file in (ROOT / folder).glob(pattern)))


_SERVICES: Final = ("src/proreus/controllers/service", "src/proreus/providers/simulated")
_NODES: Final = (
    "src/proreus/controllers/cloud_node",
    "src/proreus/controllers/cloud_node_lifecycle",
)
_LOCAL: Final = ("src/proreus/providers/local", "labs/cluster", "tests/cluster")
_NOVA: Final = "src/proreus/providers/nova"


def _cloud(name: str, *more: str) -> tuple[str, ...]:
    """Return the paths of a cloud's provider and its tests, and what else belongs to it."""
    return (f"src/proreus/providers/{name}", f"tests/providers/{name}", *more)


_OPENSTACK: Final = _cloud("openstack", _NOVA, "labs/openstack")
_OPENSTACK_OFFICIAL: Final = "tests/providers/openstack/official"
_LONG: Final = ("-m", "long")

_STAGED_CLOUDS: Final = (
    "aws",
    "azure",
    "baidu",
    "cloudstack",
    "gce",
    "mesos",
    "openstack",
    "ovirt",
    "photon",
    "rackspace",
    "rancher",
    "vsphere",
)
"""Clouds whose long tests have stages of their own."""

STAGES: Final = (
    Stage(
        "oldest",
        "controllers do on the oldest Kubernetes what they do on the newest",
        ("make", "test-oldest"),
        300,
        ("tests/apiserver",),
        prepare=("make", "assets-oldest"),
        ci=True,
    ),
    Stage(
        "python",
        "the quick tests pass on the newest Python of this machine",
        (".ci/python",),
        150,
        ("constraints.txt",),
        ci=True,
    ),
    Stage(
        "cluster",
        "three of Kubernetes' own specs pass on a real cluster, with the provider local",
        (".ci/cluster",),
        240,
        (*_LOCAL, ".ci/cluster"),
        prepare=(".ci/cluster", "prepare"),
        ci=True,
    ),
    Stage(
        "openstack",
        "the provider openstack works on real services",
        (".ci/openstack",),
        450,
        (*_OPENSTACK, ".ci/openstack"),
        prepare=(".ci/openstack", "prepare"),
        ci=True,
    ),
    Stage(
        "aws",
        "200 nodes and load balancers of both kinds live on an AWS that fails; every rule holds",
        tests("tests/providers/aws", "--ignore=tests/providers/aws/official", "-k", "not large"),
        400,
        _cloud("aws"),
        ci=True,
    ),
    Stage(
        "aws-large",
        "500 nodes and 50 Services live on an AWS that fails",
        tests("tests/providers/aws/test_manager.py", "-k", "large"),
        500,
        _cloud("aws"),
        ci=True,
    ),
    Stage(
        "aws-official",
        "a cluster moves from the official manager of AWS and back; both end alike",
        tests("tests/providers/aws/official"),
        240,
        _cloud("aws"),
        ci=True,
    ),
    Stage(
        "azure",
        "200 nodes live on an Azure that fails; a cluster moves from the official manager and back",
        tests("tests/providers/azure"),
        300,
        _cloud("azure"),
        ci=True,
    ),
    Stage(
        "vsphere",
        "1,000 nodes live on vCenters and an NSX-T that fail; a cluster moves there and back",
        tests("tests/providers/vsphere"),
        300,
        _cloud("vsphere", "labs/vsphere"),
        ci=True,
    ),
    Stage(
        "gce",
        "200 nodes live on a GCE that fails, its SDKs speak to it, every conformance rule holds",
        tests("tests/providers/gce", "--ignore=tests/providers/gce/official"),
        240,
        _cloud("gce"),
        ci=True,
    ),
    Stage(
        "gce-official",
        "a cluster moves from the official manager of GCE and back; both end alike",
        tests("tests/providers/gce/official"),
        170,
        _cloud("gce"),
        ci=True,
    ),
    Stage(
        "mesos",
        "200 nodes live on Mesos masters that fail; a real ZooKeeper names the leader",
        tests("tests/providers/mesos"),
        300,
        _cloud("mesos", "labs/zookeeper"),
        ci=True,
    ),
    Stage(
        "cloudstack",
        "200 nodes live on an emulated CloudStack; a cluster moves there and back",
        tests("tests/providers/cloudstack"),
        200,
        _cloud("cloudstack"),
        ci=True,
    ),
    Stage(
        "ovirt",
        "200 nodes live on an emulated oVirt, its SDKs speak to it, and `local` balances loads",
        tests("tests/providers/ovirt"),
        180,
        _cloud("ovirt"),
        ci=True,
    ),
    Stage(
        "rancher",
        "200 nodes live on an emulated Rancher of either version; a Service moves there and back",
        tests("tests/providers/rancher"),
        300,
        _cloud("rancher"),
        ci=True,
    ),
    Stage(
        "baidu",
        "200 nodes live on an emulated Baidu AI Cloud, which the vendor's SDK for Go uses, too",
        tests("tests/providers/baidu"),
        120,
        _cloud("baidu"),
        ci=True,
    ),
    Stage(
        "rackspace",
        "200 nodes live on an emulated Rackspace; gophercloud speaks to it, too",
        tests("tests/providers/rackspace"),
        120,
        _cloud("rackspace", _NOVA),
        ci=True,
    ),
    Stage(
        "photon",
        "200 nodes live on an emulated Photon Controller; a cluster moves there and back",
        tests("tests/providers/photon"),
        180,
        _cloud("photon"),
        ci=True,
    ),
    Stage(
        "kills",
        "a manager that is killed at any recorded boundary leaves nothing behind",
        tests("tests/faults/test_crashes.py", *_files("tests/faults", "test_kill*.py")),
        400,
        ("tests/faults", *_SERVICES, *_NODES),
        ci=True,
    ),
    Stage(
        "faults",
        "every call to API server and cloud can fail, at every boundary",
        tests(
            "tests/faults",
            "--ignore=tests/faults/test_crashes.py",
            *(f"--ignore={file}" for file in _files("tests/faults", "test_kill*.py")),
        ),
        600,
        ("tests/faults", *_SERVICES, *_NODES),
        ci=True,
    ),
    Stage(
        "properties",
        "random histories of the whole manager, and of clusters that lose machines, end well",
        tests("tests/properties"),
        400,
        ("tests/properties", "labs/network", *_SERVICES, *_NODES),
        ci=True,
    ),
    Stage(
        "parity",
        "all scripts of events end as with the Go framework, but for what is meant",
        tests("tests/parity"),
        240,
        ("tests/parity", *_SERVICES, *_NODES),
        ci=True,
    ),
    Stage(
        "rest",
        "long tests of all other folders, the documentation's commands among them",
        tests(
            "tests",
            *(f"--ignore=tests/{one}" for one in ("cluster", "faults", "parity", "properties")),
            *(f"--ignore=tests/providers/{one}" for one in _STAGED_CLOUDS),
        ),
        400,
        ("docs", "tests/apiserver", "src/proreus/testing/demo"),
        ci=True,
    ),
    Stage(
        "openstack-life",
        "a whole manager with 50 nodes and 20 Services lives on real services of OpenStack",
        (".ci/openstack", *_LONG, "tests/providers/openstack", f"--ignore={_OPENSTACK_OFFICIAL}"),
        1200,
        _OPENSTACK,
        prepare=(".ci/openstack", "prepare"),
    ),
    Stage(
        "openstack-official",
        "a cluster moves from the official manager of OpenStack and back, on real services",
        (".ci/openstack", *_LONG, _OPENSTACK_OFFICIAL),
        600,
        _OPENSTACK,
        prepare=(".ci/openstack", "prepare"),
        ci=True,
    ),
    Stage(
        "nodes",
        "real nodes in namespaces, with the manager on the gateway and as pods",
        (".ci/cluster", "nodes"),
        520,
        (*_LOCAL, "src/proreus/controllers/kubelet_serving", "charts", "Dockerfile"),
        prepare=(".ci/cluster", "prepare"),
        ci=True,
    ),
    Stage(
        "e2e",
        "Kubernetes' own specs of load balancers pass on a real cluster",
        (".ci/cluster", "e2e"),
        240,
        _LOCAL,
        prepare=(".ci/cluster", "prepare"),
        ci=True,
    ),
    Stage(
        "chaos",
        "the same specs pass while managers, gateways and nodes come and go",
        (".ci/cluster", "chaos"),
        300,
        _LOCAL,
        prepare=(".ci/cluster", "prepare"),
        ci=True,
    ),
    Stage(
        "updates",
        "rolling updates disturb no client, also while these come and go; the specs pause for long",
        (".ci/cluster", "updates"),
        1500,
        _LOCAL,
        prepare=(".ci/cluster", "prepare"),
    ),
)


class Due(NamedTuple):
    """Stages in the order in which to run them: those that a change made due, and the rest."""

    changed: tuple[Stage, ...]
    rest: tuple[Stage, ...]


def due(stages: Iterable[Stage], changes: Mapping[str, Sequence[str] | None], turn: int) -> Due:
    """Order stages: own code changed, floor changed, the rest; each group turned by `turn`.

    Args:
        stages: Those to choose from.
        changes: By stage the paths changed since it last passed; None where that is not known.
        turn: A number that differs from commit to commit.
    """
    groups: tuple[list[Stage], list[Stage], list[Stage]] = ([], [], [])
    for stage in stages:
        paths = changes[stage.name]
        if paths is None or _touches(paths, stage.own):
            groups[0].append(stage)
        else:
            groups[1 if _touches(paths, FLOOR) else 2].append(stage)
    own, floor, rest = (_turned(group, turn) for group in groups)
    return Due((*own, *floor), rest)


def _touches(paths: Iterable[str], places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for path in paths for place in places)


def _turned(stages: Sequence[Stage], turn: int) -> tuple[Stage, ...]:
    start = turn % len(stages) if stages else 0
    return (*stages[start:], *stages[:start])


class Passed:
    """A record of which commit each stage passed on last, in this machine's cache."""

    def __init__(self, directory: Path) -> None:
        """Keep it in this directory."""
        self._directory = directory

    def changes(self, stage: Stage) -> list[str] | None:
        """Return the paths changed since the stage passed.

        None if it never did, or on a lost commit.
        """
        file = self._directory / stage.name
        if not file.exists():
            return None
        since = file.read_text(encoding="ascii").strip()
        done = _git("diff", "--name-only", since, "HEAD")
        return done.stdout.splitlines() if done.returncode == 0 else None

    def add(self, stage: Stage) -> None:
        """Note that the stage passed on the commit that is checked out."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / stage.name).write_text(f"{head()}\n", encoding="ascii")


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ("git", *arguments), cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True
    )


def head() -> str:
    """Return the commit that is checked out."""
    return _git("rev-parse", "HEAD").stdout.strip()


def run(stage: Stage, deadline: float = math.inf) -> Outcome:
    """Prepare and run a stage, and end it at its limit, which is before the deadline."""
    say(f"{stage.name}: {stage.proves} (usually {stage.usual} s, at most {stage.limit} s)")
    before = min(PREPARING, deadline - time.monotonic() - stage.limit)
    if stage.prepare and (code := _run(stage.prepare, limit=before)) != 0:
        return Outcome.PASSED_BY if code in {None, LACKING} else Outcome.FAILED
    code = _run(stage.command, limit=stage.limit)
    if code is None:
        return Outcome.LATE
    return {0: Outcome.PASSED, LACKING: Outcome.PASSED_BY}.get(code, Outcome.FAILED)


def _run(command: tuple[str, ...], limit: float) -> int | None:
    """Return the exit code of a command; None if it reached its limit."""
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let a command that still runs clean up; then nothing of its session is left."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            say(f"no end within {GRACE:.0f} s of SIGTERM: killed")
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def chosen(order: Due, deadline: float) -> Iterator[Stage]:
    """Return the stages that fit before the deadline, asked one after another as time goes by."""
    for stage in order.changed:
        if time.monotonic() + stage.room <= deadline:
            yield stage
    left = ROTATING
    for stage in order.rest:
        if stage.usual <= left and time.monotonic() + stage.room <= deadline:
            left -= stage.usual
            yield stage


def say(line: str) -> None:
    """Print a line that is seen at once, also in a file."""
    print(f"== {line}", flush=True)


def run_all(
    stages: Iterable[Stage], among: Sequence[Stage], passed: Passed, deadline: float = math.inf
) -> int:
    """Run stages, then say how each of those they are among ended; 1 if any failed."""
    ends: dict[str, tuple[Outcome, float]] = {}
    for stage in stages:
        begun = time.monotonic()
        outcome = run(stage, deadline)
        ends[stage.name] = (outcome, time.monotonic() - begun)
        if outcome is Outcome.PASSED:
            passed.add(stage)
        say(f"{stage.name}: {outcome.value}, {ends[stage.name][1]:.0f} s")
    say("stages")
    for stage in among:
        end = ends.get(stage.name)
        print(
            f"{stage.name:20} " + (f"{end[0].value}, {end[1]:.0f} s" if end else "left for later")
        )
    count = {outcome: sum(end[0] is outcome for end in ends.values()) for outcome in Outcome}
    failed = count[Outcome.FAILED] + count[Outcome.LATE]
    print(
        f"stages: {count[Outcome.PASSED]} passed, {failed} failed, "
        f"{count[Outcome.PASSED_BY]} skipped",
        flush=True,
    )
    return 1 if failed else 0


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says; 1 if a stage failed."""
    options = _parser().parse_args(arguments)
    by_name = {stage.name: stage for stage in STAGES}
    passed = Passed(cache(os.environ, "stages"))
    if unknown := sorted(set(options.names) - by_name.keys()):
        print(f"error: no stage {', '.join(unknown)}; --list shows them", file=sys.stderr)
        return 2
    if options.list:
        for stage in STAGES:
            print(f"{stage.name:20} {stage.usual:5} s  {stage.proves}")
        return 0
    if options.ci is None:
        wanted = [by_name[name] for name in options.names] or STAGES
        return run_all(wanted, wanted, passed)
    stages = [stage for stage in STAGES if stage.ci]
    changes = {stage.name: passed.changes(stage) for stage in stages}
    order = due(stages, changes, int(head(), 16))
    say("due: " + (", ".join(stage.name for stage in order.changed) or "none"))
    say("the rest: " + (", ".join(stage.name for stage in order.rest) or "none"))
    deadline = time.monotonic() + options.ci
    return run_all(chosen(order, deadline), stages, passed, deadline)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="stages to run; all if none is named"
    )
    parser.add_argument("--list", action="store_true", help="list the stages and what they prove")
    parser.add_argument(
        "--ci",
        type=float,
        metavar="SECONDS",
        help="run what changed since it last passed, and some of the rest, within that time",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
