"""Errors: an HTTP status, and a body as the clients of each API expect it.

OpenAI's is `{"error": {message, type, param, code}}`; Anthropic's and Ollama's routes have their own.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

# How paths of the other two APIs begin.
ANTHROPICS, OLLAMAS = "/v1/messages", "/api/"
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


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_body(error: ApiError) -> dict[str, Any]:
    """The error as Anthropic's clients expect it, in a response and in a stream."""
    kind = _ANTHROPIC_TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def ollama_body(error: ApiError) -> dict[str, Any]:
    """The error as Ollama's clients expect it, in a response and in a stream."""
    return {"error": error.message}


def body_for(path: str, error: ApiError) -> dict[str, Any]:
    """The error in the form of the API that a path is of."""
    if path.startswith(ANTHROPICS):
        return anthropic_body(error)
    return ollama_body(error) if path.startswith(OLLAMAS) else error.body()


@contextlib.contextmanager
def renamed(names: Mapping[str, str], unsent: str = "") -> Iterator[None]:
    """Errors about a field of a chat name the field that the client sent.

    Args:
        names: Of fields of a chat, to what the client's API calls them.
        unsent: What a message may begin with and this API has not; it is left out.
    """
    try:
        yield
    except ApiError as error:
        pattern = rf"^(structured_outputs, )?({'|'.join(names)})\b"
        message = re.sub(pattern, lambda found: (found[1] or "") + names[found[2]], error.message.removeprefix(unsent))
        param = names.get(error.param or "", error.param)
        raise ApiError(error.status, message, param=param, code=error.code, headers=error.headers) from error


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
