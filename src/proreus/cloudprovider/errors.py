"""The errors that a provider raises or answers when a cloud refuses or fails.

    CloudError                  the cloud refused or failed; retried with backoff
    ├── Throttled               429 or its like; `after` from Retry-After if the cloud said
    ├── RetryAfter              not now: try again after exactly `after` seconds, no failure
    ├── Unauthenticated         the credentials are wrong or lack a right
    ├── Refused                 an answer with another error (`cloudprovider.refused`)
    ├── CallTimeout             no answer before the deadline: the outcome is unknown
    ├── IdentityConflict        the machine found is not the one the Node names
    ├── NotSupported            this cloud cannot do what is asked; retried only after a change
    ├── ImplementedElsewhere    another controller does this: success without a status
    ├── InvalidRequest          a Service or Node asks for something impossible; names the field
    └── ConfigError             the cloud-config is wrong: every error of it, one per line

Absence is never an error: `NotFound` is a value (`cloudprovider.instances`).
"""

from typing import Self


class CloudError(Exception):
    """An error of the cloud. Its text reaches events and conditions: no secrets in it.

    Attributes:
        disowns: Whether the Service is to show no address any more, since it would show another's:
            nodes send what comes for an address in a status to that Service.
    """

    disowns: bool = False

    def disowning(self) -> Self:
        """Return a copy that disowns; others who share a failed call get the error as it is."""
        copied = type(self).__new__(type(self), *self.args)
        vars(copied).update(vars(self), disowns=True)
        return copied.with_traceback(self.__traceback__)


class Throttled(CloudError):
    """The error when the cloud's quota is used up (such as HTTP 429)."""

    def __init__(self, message: str, *, after: float | None = None) -> None:
        """Keep `after`, the seconds the cloud asked to wait, or None if it did not say."""
        super().__init__(message)
        self.after = after


class RetryAfter(CloudError):
    """The request to be called again after exactly `after` seconds; counts as no failure."""

    def __init__(self, message: str, *, after: float) -> None:
        """Keep `after`, in seconds."""
        super().__init__(message)
        self.after = after


class Unauthenticated(CloudError):
    """The error when the cloud does not accept the credentials, or they lack a right."""


class CallTimeout(CloudError):
    """The error when a call had no answer before its deadline, so its outcome is unknown."""


class IdentityConflict(CloudError):
    """The error when a Node's provider id names another machine than the cloud has for it."""


class NotSupported(CloudError):
    """The error when the cloud cannot do what is asked of it."""


class ImplementedElsewhere(CloudError):
    """The answer that another controller serves the Service; a success without a status."""


class InvalidRequest(CloudError):
    """The error when an object asks for the impossible; names the field and the remedy."""


class ConfigError(CloudError):
    """The error of a wrong configuration; `problems` holds every mistake with its place."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        """Keep all `problems`, one sentence each."""
        super().__init__("\n".join(problems))
        self.problems = problems
