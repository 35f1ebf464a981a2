"""The real services answer as they did when they were recorded."""

import json
import warnings
from typing import Any

from .record import RECORDED, record
from .script import SCRIPT
from .shape import steady

REAL: dict[str, Any] = json.loads(RECORDED.read_text())


async def test_the_real_services_still_answer_as_recorded() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        answers = json.loads(json.dumps(await record()))
    assert set(answers) == set(REAL)
    differing = [name for name in REAL if told(answers, name) != told(REAL, name)]
    for name in differing:
        assert lines(answers[name]) == lines(REAL[name]), name
    assert not differing


def lines(answer: Any) -> list[str]:
    """An answer in lines, so that a failure shows the first one that differs."""
    return json.dumps(answer, indent=1, sort_keys=True).splitlines()


def told(answers: dict[str, Any], name: str) -> Any:
    """What an answer says for certain; Octavia may be done before it has answered a change."""
    (step,) = (one for one in SCRIPT if one.name == name)
    return answers[name] if step.request.startswith("GET ") else steady(answers[name])
