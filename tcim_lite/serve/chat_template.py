"""The package's chat template, rendered in a process of its own (template_worker.py) with limits."""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..llm.json_object import read_object
from ..llm.text_file import read_text
from ..own_process import module_command
from .vocabulary import Vocabulary

_SECONDS = 10.0
_MOST_OUTPUT_BYTES = 64 << 20


class TemplateError(ValueError):
    """The template refuses a conversation, fails, or goes beyond a limit."""


class ChatTemplate:
    """Renders conversations. Thread-safe; one at a time.

    A template is code that comes with a package. It can ask for any time and memory in one operation, which nothing in
    this process could stop; so it runs in jinja2's sandbox in a child, which is ended at a limit and started again.

    Args:
        source: The template.
        variables: What it sees besides the conversation, such as the special tokens.
        seconds: For one rendering.
    """

    def __init__(self, source: str, variables: Mapping[str, str], seconds: float = _SECONDS):
        self.source, self._seconds = source, seconds
        self._hello = json.dumps({"template": source, "variables": dict(variables)}).encode() + b"\n"
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of(cls, folder: Path, vocabulary: Vocabulary, file: Path | None = None) -> ChatTemplate | None:
        """The template in `file`, else the tokenizer folder's, else None.

        Raises:
            OSError: `file` cannot be read.
            ValueError: It is no text file, or chat_template.json is no JSON object.
        """
        path = file or folder / "chat_template.jinja"
        if file or path.is_file():
            return cls(read_text(path), vocabulary.special)
        found = vocabulary.config.get("chat_template")
        if found is None:  # in a file of its own, as earlier processors wrote it
            found = read_object(folder / "chat_template.json", _MOST_OUTPUT_BYTES).get("chat_template")
        if isinstance(found, list):  # several with names
            named = {item.get("name"): item.get("template") for item in found if isinstance(item, dict)}
            found = named.get("default")
        return cls(found, vocabulary.special) if isinstance(found, str) else None

    def render(self, arguments: Mapping[str, Any]) -> str:
        """The prompt text.

        Args:
            arguments: Variables: `messages`, `tools`, `add_generation_prompt`, and what the template has besides.

        Raises:
            TemplateError: As the class says.
        """
        line = json.dumps(arguments).encode() + b"\n"
        with self._lock:
            try:
                answer = self._ask(line)
            except BaseException:
                self._end()
                raise
        if "error" in answer:
            raise TemplateError(f"the chat template fails: {answer['error']}")
        return str(answer["text"])

    def close(self) -> None:
        """Ends the child."""
        with self._lock:
            self._end()

    def _ask(self, line: bytes) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                module_command("tcim_lite.serve.template_worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server
            )
            line = self._hello + line
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + self._seconds
        try:
            _write(self._process.stdin.fileno(), line, deadline)
            return dict(json.loads(_read_line(self._process.stdout.fileno(), deadline)))
        except (BrokenPipeError, EOFError):
            raise TemplateError("the chat template needs too much memory, or crashed") from None
        except TimeoutError:
            raise TemplateError(f"the chat template takes longer than {self._seconds:g} s") from None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:  # closes the pipes, waits
                pass


def _write(pipe: int, data: bytes, deadline: float) -> None:
    os.set_blocking(pipe, False)
    view = memoryview(data)
    while view:
        if not select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))[1]:
            raise TimeoutError
        view = view[os.write(pipe, view) :]


def _read_line(pipe: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while not parts or not parts[-1].endswith(b"\n"):
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(pipe, 1 << 20)
        if not part:
            raise EOFError
        parts.append(part)
        size += len(part)
        if size > _MOST_OUTPUT_BYTES:
            raise TemplateError(f"the chat template makes more than {_MOST_OUTPUT_BYTES >> 20} MiB")
    return b"".join(parts)
