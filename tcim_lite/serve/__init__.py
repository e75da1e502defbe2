"""An HTTP server with OpenAI's interface over the engine (docs/serving.md); `tcim-lite serve` starts it.

Needs the extra `[serve]`; importing this module does not.
"""

from .options import ServeOptions

__all__ = ["ServeOptions"]
