"""/openapi.json: what the routes take and give, made from the types that read their bodies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from .. import __version__
from .errors import ANTHROPICS, OLLAMAS
from .other_fields import ignored_fields, neutral_fields
from .protocol import FORMS

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _error(of: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": f"{of}'s error object", "content": {"application/json": {"schema": schema}}}


_OPENAIS = _object(message=_TEXT, type=_TEXT, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL)
# By the beginning of the path, as `errors.body_for` chooses.
_ERRORS = {
    ANTHROPICS: _error("Anthropic", _object(type={"const": "error"}, error=_object(type=_TEXT, message=_TEXT))),
    OLLAMAS: _error("Ollama", _object(error=_TEXT)),
    "/": _error("OpenAI", _object(error=_OPENAIS)),
}


def document(routes: Iterable[tuple[str, str, Any, type[msgspec.Struct] | None]], *, has_keys: bool) -> dict[str, Any]:
    """An OpenAPI 3.1 document.

    Args:
        routes: Method, path, endpoint and type of the body of each.
        has_keys: Whether a key is asked for.
    """
    routes = list(routes)
    bodies = [route[3] for route in routes if route[3] is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    for kind in bodies:
        # Fields that nobody knows are refused; those of OpenAI's that change nothing may be anything, those of other
        # servers what changes nothing.
        components[kind.__name__]["additionalProperties"] = False
        allowed = {name: {"enum": list(values)} for name, values in sorted(neutral_fields(kind).items())}
        own = components[kind.__name__]["properties"]
        own.update({**{name: {} for name in sorted(ignored_fields(kind) - own.keys())}, **allowed})
    paths: dict[str, Any] = {}
    for method, path, endpoint, body in routes:
        path = path.replace(":path}", "}")
        summary = (endpoint.__doc__ or "").strip().splitlines()[0]
        about: dict[str, Any] = {"summary": summary, "operationId": f"{endpoint.__name__}{'_one' * ('{' in path)}"}
        error = next(error for begin, error in _ERRORS.items() if path.startswith(begin))
        about["responses"] = {"200": {"description": "as asked for"}, "4XX": error, "5XX": error}
        if body is not None:
            schema = schemas[bodies.index(body)]
            media = "multipart/form-data" if body in FORMS else "application/json"
            about["requestBody"] = {"required": True, "content": {media: {"schema": schema}}}
        if "{" in path:
            about["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
        paths.setdefault(path, {})[method.lower()] = about
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "tcim-lite serve", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }
    if has_keys:
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
    return made
