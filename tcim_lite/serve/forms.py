"""Bodies of type multipart/form-data, in which clients send files."""

from __future__ import annotations

from email.errors import MessageError
from email.message import Message
from email.parser import BytesHeaderParser

from starlette.requests import Request

from .errors import ApiError
from .guard import read_body
from .options import ServeOptions

_MOST_FIELDS = 64


async def read_form(request: Request, options: ServeOptions) -> list[tuple[str, bytes]]:
    """The fields of a form: names and values as they came.

    A page of another site can send forms without asking first, but not without saying which site it is of.

    Raises:
        ApiError: 403 for a page of another site, 400 for what is no form, else as `read_body`.
    """
    origin = request.headers.get("origin")
    is_ours = origin is None or origin.partition("://")[2] == request.headers.get("host")
    if not is_ours and not {origin, "*"} & set(options.cors_origins):
        raise ApiError(403, f"a page of {origin!r:.80} may not ask here; start the server with --cors-origin")
    body = await read_body(request, options.max_body_bytes, "multipart/form-data")
    content_type = Message()
    content_type["Content-Type"] = request.headers["content-type"]
    boundary = content_type.get_boundary()
    if not boundary:
        raise ApiError(400, "content-type has no boundary; let the client write it: it knows what it put into the body")
    _, *pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"), _MOST_FIELDS + 2)
    if not pieces or not pieces[-1].startswith(b"--"):
        raise ApiError(
            400, f"the body is no whole form of at most {_MOST_FIELDS} fields: it does not end with its boundary"
        )
    return [_field(piece) for piece in pieces[:-1]]


def _field(piece: bytes) -> tuple[str, bytes]:
    head, found, value = piece.partition(b"\r\n\r\n")
    try:
        headers = BytesHeaderParser().parsebytes(head.lstrip() + b"\r\n\r\n")
        name = headers.get_param("name", header="content-disposition")
    except (MessageError, ValueError, LookupError):
        name = None
    if not found or not isinstance(name, str) or not name:
        raise ApiError(400, "a field of the form has no name in its Content-Disposition")
    return name, value
