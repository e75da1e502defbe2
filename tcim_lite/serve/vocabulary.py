"""The package's tokenizer for the server: `tokenizers` alone, without transformers."""

from __future__ import annotations

import functools
import json
import threading
from pathlib import Path
from typing import Any, Literal

from ..llm.encoders import EncoderPrompt
from ..llm.json_object import read_object
from .errors import ApiError

_MOST_BYTES = 256 << 20
CHARS_PER_TOKEN = 16  # more than texts have
_AT_A_CUT = 64  # so many tokens less may the whole of a text have than a part of it, where the part ends in a word


class Vocabulary:
    """Text to tokens and back; thread-safe. The engine uses it as its tokenizer.

    Args:
        folder: The package's tokenizer folder.

    Attributes:
        backend_tokenizer: of `tokenizers`; grammars are compiled for it.
        special: names and texts of the special tokens in tokenizer_config.json, such as "eos_token".
        config: tokenizer_config.json.
        eos_token_id: None where the configuration names no end token.
        longer: option of the compiler for longer prompts.

    Raises:
        ImportError: tokenizers is missing.
        FileNotFoundError: The folder has no tokenizer.json.
        ValueError: A file cannot be used; the message names it.
    """

    def __init__(self, folder: Path):
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ImportError("the server needs tokenizers: pip install 'tcim-lite[serve]'") from error
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; the server needs it. Compile a checkpoint that has one")
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"{path}: has {path.stat().st_size} bytes; a tokenizer has at most {_MOST_BYTES}")
        try:
            self.backend_tokenizer = Tokenizer.from_file(str(path))
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # a Rust panic is no Exception
            raise ValueError(f"{path}: the tokenizer cannot be loaded: {error}") from None
        self.backend_tokenizer.no_truncation()
        self.backend_tokenizer.no_padding()
        self.config = read_object(folder / "tokenizer_config.json", _MOST_BYTES)
        self.special = {
            name: text
            for name, value in self.config.items()
            if name.endswith("_token")
            and isinstance(text := value.get("content") if isinstance(value, dict) else value, str)
        }
        eos = self.special.get("eos_token")
        self.longer = "--context-length"
        self.eos_token_id: int | None = None if eos is None else self.backend_tokenizer.token_to_id(eos)
        self._cutting = threading.Lock()
        added = self.backend_tokenizer.get_added_tokens_decoder()
        self._added = {token.content for token in added.values()}
        self._special = {number for number, token in added.items() if token.special}

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of `text`; with `special`, those that the tokenizer puts around every text besides."""
        return list(self.backend_tokenizer.encode(text, add_special_tokens=special).ids)

    def encode_prompt(self, text: str, *, special: bool, most: int) -> list[int]:
        """As `encode`, for a prompt of at most `most` tokens; reads no more of a text than shows that it has more.

        A megabyte takes seconds and a hundred times its size in memory.

        Raises:
            ApiError: The text has more tokens.
        """
        length = CHARS_PER_TOKEN * most
        while length < len(text):
            count = len(self.encode(text[:length], special=special))
            if count > most + _AT_A_CUT:
                raise ApiError(
                    400,
                    f"the prompt has more than {count - _AT_A_CUT} tokens, the context holds {most}; shorten it or "
                    f"compile with a larger {self.longer}",
                    code="context_length_exceeded",
                )
            length *= 2
        return self.encode(text, special=special)

    def encode_pair(
        self, left: str, right: str, most: int, side: Literal["left", "right"] | None
    ) -> tuple[EncoderPrompt, int]:
        """Two texts as the tokenizer puts them together, and how many tokens they have if nothing is cut off.

        Args:
            most: Tokens, if one side of the texts is to be cut off, the longer text first.
            side: Which side; None cuts nothing.
        """
        found = self.backend_tokenizer.encode(left, right)
        whole = len(found.ids)
        if whole > most and side is not None:
            with self._cutting:
                self._cutter.enable_truncation(most, strategy="longest_first", direction=side)
                found = self._cutter.encode(left, right)
        return EncoderPrompt(found.ids, found.type_ids), whole

    def decode(self, tokens: list[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        return str(self.backend_tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens))

    def token_id(self, text: str) -> int | None:
        """The token that stands for all of `text`."""
        number = self.backend_tokenizer.token_to_id(text)
        return None if number is None else int(number)

    def is_special(self, token: int) -> bool:
        """Whether `decode` leaves a token out where it skips special ones."""
        return token in self._special

    def token_bytes(self, token: int) -> bytes:
        """What one token stands for; a token may be a part of a character."""
        text = self.backend_tokenizer.id_to_token(token)
        if text is None:
            return b""
        if text in self._added:
            return str(text).encode()
        if self._is_byte_level:
            alphabet = _byte_alphabet()
            return bytes(byte for char in text for byte in ([alphabet[char]] if char in alphabet else char.encode()))
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            return bytes([int(text[3:5], 16)])
        return str(text).replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()

    @functools.cached_property
    def _cutter(self) -> Any:
        """A copy, because cutting is a state of a tokenizer."""
        return type(self.backend_tokenizer).from_str(self.backend_tokenizer.to_str())

    @functools.cached_property
    def _is_byte_level(self) -> bool:
        return "ByteLevel" in json.dumps(json.loads(self.backend_tokenizer.to_str())["decoder"])


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """The characters by which byte-level vocabularies write bytes (GPT-2): printable ones as they are."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}
