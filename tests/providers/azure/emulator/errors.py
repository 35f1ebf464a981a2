"""Azure's errors."""

from typing import Any


class ArmError(Exception):
    """An error that Azure answers."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}


def invalid(code: str, message: str) -> ArmError:
    return ArmError(400, code, message)


def missing(kind: str, name: str, group: str) -> ArmError:
    text = f"The Resource '{kind}/{name}' under resource group '{group}' was not found."
    return ArmError(404, "ResourceNotFound", text)
