"""Run the health checks behind /healthz, /livez and /readyz."""

from collections.abc import Callable, Collection

from proreus.runtime import klog

log = klog.logger(__name__)

Check = Callable[[], str | None]
"""A check, which returns None when all is well, else the problem."""


class Health:
    """The named health checks of the process.

    Most speak of *readiness*: they turn red when a part is out of order and will be tried again.
    A check added with `live=True` speaks of *liveness*: when it is red, only a restart helps.
    """

    def __init__(self) -> None:
        """Start with `ping` alone, which never fails."""
        self._checks: dict[str, tuple[Check, bool]] = {"ping": (lambda: None, True)}
        self._logged: dict[str, str] = {}

    def add(self, name: str, check: Check, *, live: bool = False) -> None:
        """Add a check.

        Raises:
            ValueError: There is a check of that name already.
        """
        if name in self._checks:
            raise ValueError(f"there is already a health check {name!r}")
        self._checks[name] = (check, live)

    def flag(self, name: str) -> Callable[[Exception | None], None]:
        """Add a readiness check that is set by hand: call it with the problem, or with None."""
        problem: Exception | None = None

        def set_problem(value: Exception | None) -> None:
            nonlocal problem
            problem = value

        self.add(name, lambda: None if problem is None else f"{type(problem).__name__}: {problem}")
        return set_problem

    def names(self, *, live: bool = False) -> tuple[str, ...]:
        """Return the names of all checks, or of the liveness checks."""
        return tuple(name for name, (_, is_live) in self._checks.items() if is_live or not live)

    def run(
        self, exclude: Collection[str] = (), *, live: bool = False
    ) -> list[tuple[str, str | None]]:
        """Run all checks, or the liveness checks, but those excluded; return each error or None."""
        return [(name, self._run(name)) for name in self.names(live=live) if name not in exclude]

    def _run(self, name: str) -> str | None:
        problem = self._ask(name)
        self._log_changes(name, problem or "")
        return problem

    def _log_changes(self, name: str, problem: str) -> None:
        """Log each change: clients see the names of failed checks, and not always the reason."""
        before = self._logged.get(name, "")
        self._logged[name] = problem
        if problem and not before:
            klog.warning(log, "A health check fails", check=name, reason=problem)
        elif before and not problem:
            klog.info(log, "A health check passes again", check=name)

    def _ask(self, name: str) -> str | None:
        check, _ = self._checks[name]
        try:
            return check()
        except Exception as exc:  # noqa: BLE001 - any check may be foreign code; it turns red
            klog.exception(log, "A health check raised an exception", err=exc, check=name)
            return f"{type(exc).__name__}: {exc}"
