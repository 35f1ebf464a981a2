"""The chart as tests see it: rendered by Helm's engine, then plain objects."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "cloud-controller-manager"
NAMESPACE: Final = "kube-system"
LEAST: Final = {"cloudProvider": "simulated"}
"""The values that the chart cannot do without."""


class Refused(Exception):
    """The chart or the rules were refused; holds what was said."""


class Programs:
    """The programs of `tools/gotools`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def render(self, **values: Any) -> list[dict[str, Any]]:
        """The objects of the chart with these values beside the least ones."""
        text = yaml.safe_dump({**LEAST, **values})
        return list(yaml.safe_load_all(self._run("chart", "render", CHART, NAMESPACE, given=text)))

    def lint(self, **values: Any) -> str:
        """What Helm's linter says; an error is an exception."""
        text = yaml.safe_dump({**LEAST, **values})
        return self._run("chart", "lint", CHART, NAMESPACE, given=text)

    def selections(self, expressions: list[str]) -> list[dict[str, Any]]:
        """Which series PromQL expressions read."""
        answer: list[dict[str, Any]] = json.loads(
            self._run("queries", given=json.dumps(expressions))
        )
        return answer

    def firing(self, rules: Path, scenarios: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """The alerts that fire at the end of each scenario."""
        answer: list[list[dict[str, Any]]] = json.loads(
            self._run("rules", rules, given=json.dumps(scenarios))
        )
        return answer

    def _run(self, program: str, *args: object, given: str) -> str:
        done = subprocess.run(
            [self._directory / program, *map(str, args)],
            check=False,
            input=given,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise Refused(done.stdout + done.stderr)
        return done.stdout


def only(objects: list[dict[str, Any]], *kinds: str) -> dict[str, Any]:
    """The one object of these kinds."""
    (one,) = [one for one in objects if one["kind"] in kinds]
    return one


def pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The spec of the manager's pod."""
    spec: dict[str, Any] = only(objects, "Deployment", "DaemonSet")["spec"]["template"]["spec"]
    return spec


def arguments(objects: list[dict[str, Any]]) -> list[str]:
    """The manager's command line."""
    (container,) = pod(objects)["containers"]
    args: list[str] = container["args"]
    return args
