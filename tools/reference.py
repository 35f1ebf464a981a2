"""Writes the pages of `docs/reference/generated` from the code: flags, metrics, roles, names.

Run by `docs/conf.py`; `python tools/reference.py FOLDER` writes them elsewhere.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from prometheus_client.metrics import MetricWrapperBase

import proreus
from proreus.app import flags
from proreus.app.options import Options
from proreus.controllers.cloud_node.reasons import Reason as NodeReason
from proreus.controllers.node_ipam.plan import Reason as IpamReason
from proreus.controllers.route.conditions import NetworkState
from proreus.controllers.service.conditions import Reason as ServiceReason
from proreus.controllers.service.recording import Reason as RecordReason
from proreus.controllers.settings import Settings
from proreus.controllers.table import CONTROLLERS
from proreus.runtime import metrics

SOURCE = Path(proreus.__file__).parent
NAMES = ("ANNOTATION_", "LABEL_", "TAINT_", "FINALIZER", "MARK_")
FLAGS_INTRODUCTION = """\
Names and meanings are those of Go's cloud-controller-manager; `--metrics-bind-address` and those in
the group *Proreus* are our own. Defaults are Go's, too, but for those that
[differ for a reason](../../explanation/differences.md). `--flag=value`, `--flag value` and, for
booleans, `--flag` are the forms. "none" is an empty value."""
REASONS_INTRODUCTION = """\
The reasons are closed lists: alerts and scripts may rely on them. The event that tells of a failed
Node has the same reason; that of a failed Service is `SyncLoadBalancerFailed`,
`UpdateLoadBalancerFailed` or `DeleteLoadBalancerFailed`, as in Go."""
METRICS_INTRODUCTION = """\
Where Go's manager has a metric, ours has its name and labels, even where the name is misspelt
(`cirdset`). Beside these there are the `process_` ones."""
CONTROLLERS_INTRODUCTION = """\
What each controller may do; `proreus roles` prints the roles as manifests, with what the whole
manager needs: leases, reviews for the secure port and, if the provider asks for them,
EndpointSlices."""
Documented = tuple[str, str, str]
"""Name in the code, value, docstring."""


def write(folder: Path) -> None:
    """Write every page into `folder`, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        file, text = folder / f"{name}.md", page()
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def flags_page() -> str:
    """Make the page of flags by group, each with its default and meaning."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Options)}
    groups: dict[str, list[tuple[str, ...]]] = {}
    for field, flag in flags.flags_of(Options).items():
        name = f"`--{field.replace('_', '-')}`"
        groups.setdefault(flag.group, []).append(
            (name, _default(flags.shown(defaults[field], flag)), flag.help)
        )
    parts = [
        "# Flags",
        FLAGS_INTRODUCTION,
    ]
    for group, rows in groups.items():
        parts += [f"## {group[0].upper()}{group[1:]}", table(("flag", "default", "what"), rows)]
    return page(parts)


def _default(shown: str) -> str:
    return "none" if shown in {"none", "''"} else f"`{shown}`"


def metrics_page() -> str:
    """Make the page of our metrics in /metrics."""
    found = sorted(
        (one for one in vars(metrics).values() if isinstance(one, MetricWrapperBase)),
        key=_metric_name,
    )
    rows = [
        (
            f"`{_metric_name(one)}`",
            str(one._type),  # noqa: SLF001 - there is no public way to these
            ", ".join(f"`{label}`" for label in one._labelnames) or "none",  # noqa: SLF001
            one._documentation,  # noqa: SLF001
        )
        for one in found
    ]
    return page(
        [
            "# Metrics",
            METRICS_INTRODUCTION,
            table(("metric", "type", "labels", "what"), rows),
        ]
    )


def _metric_name(metric: MetricWrapperBase) -> str:
    suffix = "_total" if metric._type == "counter" else ""  # noqa: SLF001 - as above
    return f"{metric._name}{suffix}"  # noqa: SLF001


def controllers_page() -> str:
    """Return the controllers: names, what they need, rights."""
    parts = [
        "# Controllers and their rights",
        CONTROLLERS_INTRODUCTION,
    ]
    for one in CONTROLLERS:
        rows = [
            (f"`{rule.resource}`", rule.group or "core", ", ".join(rule.verbs))
            for rule in one.rules
        ]
        sometimes = "" if one.needed(Settings()) else " with some of its settings, not by default"
        parts += [
            f"## {one.name}",
            f"Alias `{one.alias}`; needs the provider's capability `{one.capability}`{sometimes}."
            + (" Off unless `--controllers` names it." if one.opt_in else ""),
            table(("resource", "API group", "verbs"), rows),
        ]
    return page(parts)


def conditions_page() -> str:
    """Make the page of all reasons of conditions."""
    parts = ["# Conditions and reasons", REASONS_INTRODUCTION]
    for title, reasons in (
        ("Nodes: `CloudInitialized`", NodeReason),
        ("Services: `LoadBalancerReady`", ServiceReason),
        ("Services, with several clouds: `LoadBalancerCloud`", RecordReason),
        ("Nodes: `PodCIDRsAllocated`, with `--allocate-node-cidrs`", IpamReason),
    ):
        texts = _enum_texts(reasons)
        rows = [(f"`{one.value}`", texts[one.name]) for one in reasons]
        parts += [f"## {title}", table(("reason", "what it means and what to do"), rows)]
    routes = [(f"`{says.value[1]}`", says.value[0], says.value[2]) for says in NetworkState]
    parts += ["## Nodes: `NetworkUnavailable`", table(("reason", "status", "message"), routes)]
    return page(parts)


def _enum_texts(enum: type[StrEnum]) -> Mapping[str, str]:
    """Return the docstrings of the members, by name."""
    file = SOURCE.parent / Path(*enum.__module__.split(".")).with_suffix(".py")
    (body,) = [
        node.body
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == enum.__name__
    ]
    return {name: text for name, _, text in documented(body, lambda _: True)}


def names_page() -> str:
    """Labels, annotations, taints and the finalizer that the code reads or writes."""
    rows: list[tuple[str, ...]] = []
    for file in sorted(SOURCE.rglob("*.py")):
        if SOURCE / "testing" in file.parents or SOURCE / "providers" in file.parents:
            continue
        body = ast.parse(file.read_text()).body
        rows += [
            (f"`{value}`", name.partition("_")[0].lower(), text)
            for name, value, text in documented(body, lambda name: name.startswith(NAMES))
        ]
    return page(
        [
            "# Labels, annotations, taints",
            "What Proreus reads and writes on objects, and the marks on what it makes in clouds.",
            table(("name", "kind", "what"), sorted(set(rows), key=_by_name)),
        ]
    )


def _by_name(row: Sequence[str]) -> str:
    return row[0].strip("`").lower()


def documented(body: Sequence[ast.stmt], wanted: Callable[[str], bool]) -> list[Documented]:
    """Return the string constants of a module or class whose names are wanted.

    Raises:
        LookupError: One of them has no docstring.
    """
    found: list[Documented] = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        value = getattr(node, "value", None)
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Constant):
            continue
        if not isinstance(value.value, str) or not wanted(target.id):
            continue
        text = ast.unparse(after) if isinstance(after, ast.Expr) else ""
        if not text:
            raise LookupError(f"{target.id} needs a docstring below it: it goes into the reference")
        found.append((target.id, value.value, " ".join(ast.literal_eval(text).split())))
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [tuple(head), ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def page(parts: Iterable[str]) -> str:
    """Format paragraphs as a page."""
    return "\n\n".join(parts) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "flags": flags_page,
    "metrics": metrics_page,
    "controllers": controllers_page,
    "conditions": conditions_page,
    "names": names_page,
}

if __name__ == "__main__":
    write(Path(sys.argv[1]))
