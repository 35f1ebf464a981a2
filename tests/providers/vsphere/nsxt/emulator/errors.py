"""Make the errors of NSX-T's API.

Their form is that of `ApiError` in the vendor's model. Codes and messages are those that managers
answer. Where the vendor documents that a request is refused, but not with which code, it is
`UNKNOWN`: nobody should decide by it.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

Json = dict[str, Any]

NOT_FOUND: Final = 600
STALE: Final = 604
BAD_PATH: Final = 500012
IN_USE: Final = 500030
MARKED: Final = 500045
GONE: Final = 500090
INVALID: Final = 255
BAD_JSON: Final = 220
CREDENTIALS: Final = 403
TOKEN: Final = 98
RATE: Final = "102"
EXHAUSTED: Final = 8212
SEARCH: Final = 60500
UNKNOWN: Final = 500000
FRAMEWORK: Final = "common-services"


class NsxError(Exception):
    """An error that the API answers."""

    def __init__(
        self, status: int, code: int | str, message: str, module: str = "policy", *,
        plain: bool = False,
    ) -> None:  # fmt: skip
        """Take its parts; a `plain` one does not name its status."""
        super().__init__(message)
        self.status, self.code, self.message, self.module = status, code, message, module
        self.plain = plain

    def body(self) -> Json:
        """What is answered."""
        said: Json = {} if self.plain else {"httpStatus": HTTPStatus(self.status).name}
        return said | {
            "error_code": self.code, "module_name": self.module, "error_message": self.message,
        }  # fmt: skip


def not_found(path: str) -> NsxError:
    text = (
        f"The requested object : {path} could not be found. Object identifiers are case sensitive."
    )
    return NsxError(404, NOT_FOUND, text, FRAMEWORK)


def bad_path(path: str) -> NsxError:
    """A path that something else names: a parent, a reference, an intent."""
    return NsxError(400, BAD_PATH, f"The path=[{path}] is invalid", "Policy")


def in_use(path: str, by: Sequence[str]) -> NsxError:
    return NsxError(
        400, IN_USE, f"The object path=[{path}] cannot be deleted as either it has children or it"
        f" is being referenced by other objects path=[{','.join(by)}].",
    )  # fmt: skip


def marked(path: str) -> NsxError:
    return NsxError(
        400, MARKED, f"An object with the same path=[{path}] is marked for deletion. Either use"
        " another path or wait for the purge cycle (which runs every 5 minutes) for permanent"
        " removal of the object.",
    )  # fmt: skip


def stale(kind: str, id_: str, given: int | None, current: int) -> NsxError:
    return NsxError(
        412, STALE, f"The object {kind}/{id_} was modified by somebody else: revision {given} was"
        f" given, the current one is {current}. Fetch the latest copy of the object and retry"
        " operation.", FRAMEWORK,
    )  # fmt: skip


def gone(path: str, given: int) -> NsxError:
    """An update, by its revision, of an object that is not there."""
    return NsxError(404, GONE, f"There is no object path=[{path}] with revision {given}.")


def invalid(problems: Sequence[str]) -> NsxError:
    text = f"Field level validation errors: {{{', '.join(problems)}}}"
    return NsxError(400, INVALID, text, FRAMEWORK)


def refused(message: str) -> NsxError:
    """A body that is well formed, and that the API refuses."""
    return NsxError(400, UNKNOWN, message)


def rate_exceeded(user: str, rate: int) -> NsxError:
    text = f"Client '{user}' exceeded request rate of {rate} per second"
    return NsxError(429, RATE, text, FRAMEWORK, plain=True)


def concurrency_exceeded(user: str, most: int) -> NsxError:
    text = f"Client '{user}' exceeded request concurrency of {most}"
    return NsxError(503, RATE, text, FRAMEWORK, plain=True)


def bad_credentials() -> NsxError:
    text = "The credentials were incorrect or the account specified has been locked."
    return NsxError(403, CREDENTIALS, text, FRAMEWORK, plain=True)


def bad_token() -> NsxError:
    return NsxError(403, TOKEN, "The XSRF token is missing or wrong.", FRAMEWORK)
