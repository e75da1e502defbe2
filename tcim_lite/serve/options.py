"""What a server is told when it starts."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Limits and names of one server.

    Attributes:
        model: name that requests ask for.
        api_keys: each opens every route; without any, none is asked for.
        cors_origins: sites whose pages may ask this server; "*" is every site.
        max_body_bytes: of a request.
        max_choices: answers of one request: prompts times n.
        timeout_s: from arrival to the last token; an answer that takes longer is ended.
        stall_s: a client that takes nothing for this long is given up.
        shutdown_s: how long SIGTERM lets running answers go on.
        ping_s: between comments in a stream that has nothing else to say, so that proxies keep it open.

    Raises:
        ValueError: A limit that is not above 0, a name or key that is empty, or an origin that is none.
    """

    model: str
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 32 << 20
    max_choices: int = 128
    timeout_s: float = 600.0
    stall_s: float = 60.0
    shutdown_s: float = 30.0
    ping_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_choices", "timeout_s", "stall_s", "ping_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: expected more than 0")
        if not 0 <= self.shutdown_s < math.inf:
            raise ValueError(f"shutdown_s={self.shutdown_s}: expected 0 or more, and finite")
        if not self.model.strip():
            raise ValueError(f"the model's name is {self.model!r}; give one that requests can ask for")
        for origin in self.cors_origins:
            if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s,]+", origin):
                raise ValueError(
                    f"origin {origin!r}: expected SCHEME://HOST or SCHEME://HOST:PORT, or * for every site"
                )
        if not all(self.api_keys):
            raise ValueError("api_keys: a key is empty; leave it out, and none is asked for")
