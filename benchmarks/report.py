"""Formats the results as Markdown and as a chart."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TypeAlias

from benchmarks.contestants import GO_DEFAULT, GO_TUNED, PROREUS
from benchmarks.measure import Figures
from benchmarks.promises import judged
from benchmarks.results import Report, Row

Works: TypeAlias = Mapping[str, Sequence[Row]]
_Value = Callable[[Figures], float]

COLUMNS: Mapping[str, tuple[_Value, str]] = {
    "seconds": (lambda f: f.seconds, "{:.1f}"),
    "cloud calls": (lambda f: f.calls, "{:,.0f}"),
    "throttled": (lambda f: f.throttled, "{:,.0f}"),
    "API requests": (lambda f: f.requests, "{:,.0f}"),
    "refused": (lambda f: f.api_failures, "{:,.0f}"),
    "MiB sent": (lambda f: f.sent, "{:.1f}"),
    "MiB received": (lambda f: f.received, "{:.1f}"),
    "CPU s": (lambda f: f.cpu, "{:.1f}"),
    "API server CPU s": (lambda f: f.apiserver_cpu, "{:.1f}"),
    "etcd CPU s": (lambda f: f.etcd_cpu, "{:.1f}"),
    "both, ms a unit": (lambda f: f.server_ms, "{:.2f}"),
    "cloud CPU s": (lambda f: f.cloud_cpu, "{:.1f}"),
    "RSS MiB": (lambda f: f.rss, "{:.0f}"),
}
"""Columns of the table: what they show and how."""

_SERVER = "both, ms a unit"
_DRAWN = {"time": "seconds", "cloud calls": "cloud calls", "CPU": "CPU s", "memory": "RSS MiB"}
_SHORT = {GO_DEFAULT.key: "Go", GO_TUNED.key: "tuned Go", PROREUS.key: "Proreus"}
_GLANCE = (
    ("seconds", GO_DEFAULT.key),
    *((one, key) for one in (*_DRAWN.values(), _SERVER) for key in (GO_TUNED.key, PROREUS.key)),
)
_HEADS = {_SERVER: "API server and etcd, CPU ms a unit"}
_COLOURS = {"go-default": "#9aa5b1", "go-tuned": "#4c6ef5", "proreus": "#e8590c"}
_LEFT, _PANEL, _GAP, _LINE, _TOP = 380, 150, 40, 26, 64
_TIMES = "\N{MULTIPLICATION SIGN}"
_FONT = 'font-family="sans-serif" font-size="12"'
_DECADES = 2.0  # to each side of the reference; what is farther out is drawn at the edge


def ratio(value: float, reference: float) -> float | None:
    """Return how many times the reference a value is; None where that says nothing."""
    return value / reference if value > 0 and reference > 0 else None


def markdown(report: Report, reference: str) -> str:
    """Return all tables: the works at a glance, the promises, each work.

    Calls by their kind.
    """
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    works = report.works
    lines = [f"{report.when}; {report.machine}; {versions}.", ""]
    lines += [*glance(works, reference), "", *_promises(works)]
    for work, rows in works.items():
        lines += ["", f"**{work}**", "", *_figures(rows, reference)]
        lines += [line for row in rows for line in _further(row)]
        lines += ["", *_kinds(rows)]
    return "\n".join([*lines, ""])


def glance(works: Works, reference: str) -> list[str]:
    """Return a table with a line for each piece of work.

    Who takes how long, and what else it costs.
    """
    heads = (f"{_SHORT[key]}, {_HEADS.get(column, column)}" for column, key in _GLANCE)
    lines = [f"| | {' | '.join(heads)} |", "|---" + "|---:" * len(_GLANCE) + "|"]
    for work, rows in works.items():
        by_key = {row.key: row.figures for row in rows}
        if reference in by_key:
            cells = (_short_cell(column, key, by_key, reference) for column, key in _GLANCE)
            lines.append(f"| {work} | {' | '.join(cells)} |")
    return lines


def _short_cell(column: str, key: str, by_key: Mapping[str, Figures], reference: str) -> str:
    """Format a figure; ours with how many times the reference it is."""
    if key not in by_key:
        return ""
    if key == PROREUS.key:
        return _cell(column, by_key[key], by_key[reference])
    return _cell(column, by_key[key], None)


def _promises(works: Works) -> list[str]:
    lines = ["| promised | of | limit | median | runs | |", "|---|---|---:|---:|---:|---|"]
    for verdict in judged(works):
        promise = verdict.promise
        limit = f"{'at least' if promise.at_least else 'at most'} {promise.form}"
        lines.append(
            f"| {promise.text} | {promise.work} | {limit.format(promise.limit)} "
            f"| {promise.form.format(verdict.found)} | {verdict.runs} "
            f"| {'kept' if verdict.is_kept else '**missed**'} |"
        )
    return lines


def _figures(rows: Sequence[Row], reference: str) -> list[str]:
    base = next((row.figures for row in rows if row.key == reference), None)
    lines = [f"| | {' | '.join(COLUMNS)} |", "|---" + "|---:" * len(COLUMNS) + "|"]
    for row in rows:
        cells = (_cell(column, row.figures, base) for column in COLUMNS)
        median = f", median of {row.run}" if row.run > 1 else ""
        lines.append(f"| {row.title}{median} | {' | '.join(cells)} |")
    return lines


def _cell(column: str, figures: Figures, base: Figures | None) -> str:
    value, form = COLUMNS[column]
    shown = form.format(value(figures))
    times = None if base is None or base is figures else ratio(value(figures), value(base))
    return shown if times is None else f"{shown} ({times:.2g}{_TIMES})"


def _further(row: Row) -> list[str]:
    more = ", ".join(
        f"{name.replace('_', ' ')} {value:.2f} s" for name, value in row.figures.more.items()
    )
    return ["", f"{row.title}: {more}."] if more else []


def _kinds(rows: Sequence[Row]) -> list[str]:
    """Return a table of all calls of the cloud and requests to the API server by their kind."""
    lines = [
        f"| calls and requests | {' | '.join(row.title for row in rows)} |",
        "|---" + "|---:" * len(rows) + "|",
    ]
    for name, kinds in (("cloud", _cloud_calls), ("API", _api_requests)):
        for kind in sorted({kind for row in rows for kind in kinds(row)}):
            cells = (f"{kinds(row).get(kind, 0):,.0f}" for row in rows)
            lines.append(f"| {name}: {kind} | {' | '.join(cells)} |")
    return lines


def _cloud_calls(row: Row) -> Mapping[str, float]:
    return row.figures.cloud_calls


def _api_requests(row: Row) -> Mapping[str, float]:
    return row.figures.api_requests


def drawing(report: Report, reference: str) -> str:
    """An SVG: for each piece of work the contestants beside the reference, on a log scale."""
    drawn = {work: rows for work, rows in report.works.items() if _has(rows, reference)}
    width = _LEFT + len(_DRAWN) * (_PANEL + _GAP)
    height = _TOP + len(drawn) * _LINE + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_FONT}>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(report.rows),
    ]
    for number, (title, column) in enumerate(_DRAWN.items()):
        left = _LEFT + number * (_PANEL + _GAP)
        parts += _axis(left, height, title)
        for line, rows in enumerate(drawn.values()):
            parts += _dots(rows, reference, column, left, _TOP + line * _LINE + _LINE / 2)
    for line, work in enumerate(drawn):
        y = _TOP + line * _LINE + _LINE / 2 + 4
        parts.append(f'<text x="8" y="{y}" fill="#212529">{escape(work)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _has(rows: Sequence[Row], reference: str) -> bool:
    return any(row.key == reference for row in rows)


def _legend(rows: Sequence[Row]) -> list[str]:
    titles = {row.key: row.title for row in rows if row.key in _COLOURS}
    parts = []
    for number, (key, title) in enumerate(titles.items()):
        x = 14 + number * 150
        parts.append(f'<circle cx="{x}" cy="18" r="5" fill="{_COLOURS[key]}"/>')
        parts.append(f'<text x="{x + 10}" y="22" fill="#212529">{escape(title)}</text>')
    return parts


def _axis(left: float, height: float, title: str) -> list[str]:
    parts = [f'<text x="{left}" y="{_TOP - 22}" font-weight="bold">{escape(title)}</text>']
    for decade in (-2, -1, 0, 1, 2):
        x = left + _PANEL * (decade / _DECADES + 1) / 2
        colour = "#495057" if decade == 0 else "#dee2e6"
        label = f"{10.0**decade:g}"
        parts.append(
            f'<line x1="{x}" y1="{_TOP - 4}" x2="{x}" y2="{height - 16}" stroke="{colour}"/>'
        )
        parts.append(
            f'<text x="{x}" y="{_TOP - 8}" text-anchor="middle" font-size="9" '
            f'fill="#868e96">{label}{_TIMES}</text>'
        )
    return parts


def _dots(rows: Sequence[Row], reference: str, column: str, left: float, y: float) -> list[str]:
    value, form = COLUMNS[column]
    base = next(value(row.figures) for row in rows if row.key == reference)
    parts = []
    for row in rows:
        times = ratio(value(row.figures), base)
        if times is None or row.key not in _COLOURS:
            continue
        place = max(-_DECADES, min(_DECADES, math.log10(times)))
        x = left + _PANEL * (place / _DECADES + 1) / 2
        shown = f"{row.title}: {form.format(value(row.figures))}"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{_COLOURS[row.key]}" fill-opacity="0.85">'
            f"<title>{escape(shown)}</title></circle>"
        )
    return parts
