"""Errors as OpenAI's clients expect them: an HTTP status and `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import re
from typing import Any

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "server_error",
}


class ApiError(Exception):
    """A request that gets no answer.

    Args:
        status: HTTP status.
        message: What was got, what was expected, what to do.
        param: Field of the request's body that is to blame.
        code: One word for programs.
        headers: Of the response, besides the usual.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def invalid(error: ValueError | TypeError, param: str | None = None) -> ApiError:
    """400 for a value that some layer below refuses; such messages begin with the name of the value."""
    named = re.match(r"([a-z_]+)(?=[=:\[])", str(error))
    return ApiError(400, str(error), param=param or (named[1] if named else None), code="invalid_value")


def overloaded(message: str) -> ApiError:
    """429: the same request may succeed later."""
    return ApiError(429, message, code="queue_full", headers={"Retry-After": "1"})


def closing() -> ApiError:
    """503: the server is being shut down."""
    return ApiError(503, "the server is shutting down; ask another one, or retry", headers={"Retry-After": "5"})


def too_slow(seconds: float) -> ApiError:
    """504; trying again would take as long, so clients are told not to."""
    return ApiError(
        504,
        f"the answer took longer than the server's limit of {seconds:g} s; ask for fewer tokens, or raise --timeout",
        code="timeout",
        headers={"x-should-retry": "false"},
    )
