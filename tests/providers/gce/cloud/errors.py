"""Errors in the form in which Google's APIs answer them."""

from typing import Any


class ApiError(Exception):
    """A refusal: the HTTP status, the reason and the message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def body(self) -> dict[str, Any]:
        """The body of the answer."""
        one = {"message": self.message, "domain": "global", "reason": self.reason}
        return {"error": {"code": self.status, "message": self.message, "errors": [one]}}

    @property
    def of_operation(self) -> dict[str, Any]:
        """The fields of an operation that ended with this error."""
        words = "".join(f"_{one}" if one.isupper() else one for one in self.reason).upper()
        codes = {"NOT_FOUND": "RESOURCE_NOT_FOUND", "INVALID": "INVALID_FIELD_VALUE"}
        return {
            "error": {"errors": [{"code": codes.get(words, words), "message": self.message}]},
            "httpErrorStatusCode": self.status,
            "httpErrorMessage": self.reason,
        }


def not_found(path: str) -> ApiError:
    """There is no such resource."""
    return ApiError(404, "notFound", f"The resource '{path}' was not found")


def exists(path: str) -> ApiError:
    """There is one of that name."""
    return ApiError(409, "alreadyExists", f"The resource '{path}' already exists")


def invalid(field: str, value: object, why: str = "") -> ApiError:
    """A field has a value that it cannot have."""
    return ApiError(400, "invalid", f"Invalid value for field '{field}': '{value}'. {why}".strip())


def in_use(path: str, user: str) -> ApiError:
    """It cannot be deleted."""
    kind = path.split("/")[-2]
    return ApiError(
        400,
        "resourceInUseByAnotherResource",
        f"The {kind} resource '{path}' is already being used by '{user}'",
    )


def not_ready(path: str) -> ApiError:
    """An operation on it is under way."""
    return ApiError(400, "resourceNotReady", f"The resource '{path}' is not ready")


def precondition(field: str) -> ApiError:
    """A fingerprint is not that of today's resource."""
    return ApiError(
        412, "conditionNotMet", f"Supplied fingerprint does not match current {field} fingerprint."
    )
