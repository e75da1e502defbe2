"""Who may come in: the API key, the content type, the size of a body; and a number for every request."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ANTHROPICS, ApiError, body_for
from .options import ServeOptions
from .streams import JsonResponse
from .within import within

_OPEN = {"/", "/health"}  # a page without data, and what a load balancer asks
_BODY_S = 60.0


class Guard:
    """ASGI middleware: asks for the key, and gives every response an `x-request-id`."""

    def __init__(self, app: ASGIApp, options: ServeOptions):
        self._app, self._keys = app, [key.encode() for key in options.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if re.fullmatch(r"[\w.-]{1,80}", given, re.ASCII) else f"req_{uuid.uuid4().hex}"

        async def numbered(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
                if scope["path"].startswith(ANTHROPICS):
                    MutableHeaders(scope=message)["request-id"] = request_id  # Anthropic's name
            await send(message)

        if not self._keys and not _is_ours(scope, headers.get("host", "")):
            error = ApiError(
                403, f"the host {headers['host'][:80]!r} is not this machine; ask localhost, or set --api-key"
            )
            await error_response(error, scope["path"])(scope, receive, numbered)
            return
        is_open = scope["path"] in _OPEN and scope["method"] != "POST"
        if not is_open and not self._knows(headers):
            error = ApiError(
                401,
                "a key is needed: send the header 'Authorization: Bearer KEY', or 'x-api-key: KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
            await error_response(error, scope["path"])(scope, receive, numbered)
            return
        await self._app(scope, receive, numbered)

    def _knows(self, headers: Headers) -> bool:
        kind, _, key = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            key = headers.get("x-api-key", "")  # as clients of Anthropic's send it
        sent = key.strip(" ").encode("latin-1")  # the bytes as they came; those of a key are UTF-8
        found = [hmac.compare_digest(sent, known) for known in self._keys]  # all: no hint by time
        return not self._keys or any(found)


def _is_ours(scope: Scope, host: str) -> bool:
    """Whether a request to the loopback address names it, or an address.

    A page of another site can have its own name lead here, and then read the answers as if they were its site's.
    """
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    if not name or name.lower() == "localhost" or not _is_loopback((scope.get("server") or ("", 0))[0]):
        return True
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name.strip("[]")))
    return False


def _is_loopback(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False


def error_response(error: ApiError, path: str) -> Response:
    """The error as a response, in the form of the API that a path is of."""
    return JsonResponse(body_for(path, error), error.status, headers=error.headers)


async def read_body(request: Request, most: int, expected: str = "application/json") -> bytes:
    """The body of a POST of the expected type.

    JSON has to be announced as such: a page of another site cannot do that without asking first.

    Raises:
        ApiError: 415 for another type or a compressed body, 413 for too many bytes, 408 for a client that does not go
            on.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != expected:
        raise ApiError(415, f"content-type is {kind[:60] or 'missing'}; send 'Content-Type: {expected}'")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise ApiError(415, f"content-encoding is {encoding[:60]}; send the body as it is, without compression")
    length = request.headers.get("content-length", "")
    announced = f" of {int(length[:20])} bytes" if length.isdigit() else ""
    too_large = ApiError(
        413,
        f"the body{announced} is larger than the {most} bytes that the server takes: send less, or start the server "
        "with a larger --max-body-mb",
        code="body_too_large",
    )
    if length.isdigit() and int(length[:20]) > most:
        raise too_large

    async def read() -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large
            parts.append(part)
        return b"".join(parts)

    try:
        return await within(_BODY_S, read())
    except asyncio.TimeoutError:
        raise ApiError(408, f"the body did not come within {_BODY_S:g} s") from None
