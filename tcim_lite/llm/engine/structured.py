"""Answers that follow a JSON schema, a regular expression or a choice, by llguidance (extra `[structured]`)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .answer_schema import answer_schema

# Between the tokens of JSON, as llama.cpp has it: a blank, or line ends and an indentation. A small model writes as
# much as is allowed; without a bound, until its context is full.
_WHITESPACE = r" |\r?\n{1,2}[ \t]{0,20}"

# Options of llguidance. An answer that fits one of several schemas may fit two: oneOf becomes anyOf.
_JSON_OPTIONS: Any = {"whitespace_pattern": _WHITESPACE, "coerce_one_of": True}


# Where a schema is wrong in the text of a grammar, and that text.
_PLACE, _LISTING = re.compile(r"^at \d+\(\d+\): failed to compile JSON schema: "), re.compile(r"\n *1 \| ")


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """JSON between two texts, as a model writes calls of tools.

    Attributes:
        begin: text before; a line end may follow.
        json: its schema.
        end: text behind; a line end may precede.
    """

    begin: str
    json: Mapping[str, Any]
    end: str


@dataclass(frozen=True, kw_only=True)
class StructuredOutput:
    """What an answer must look like; one of json, regex and choice.

    Attributes:
        json: a JSON schema, as an object or as text; `{"type": "object"}` takes any object. An object whose schema
            lists properties has no others, unless `additionalProperties` says so.
        tagged: with `json`, what may come in its place, once or several times, each in a line of its own or not.
        regex: the whole answer matches it (the syntax is that of Rust's regex crate).
        choice: the answer is one of these.

    Raises:
        ValueError: None is given, several are, or no choice is left.
    """

    json: Mapping[str, Any] | str | None = None
    tagged: Tagged | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("json", "regex", "choice") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"structured output: got {' and '.join(given) or 'nothing'}, expected one of json, regex, choice"
            )
        if self.tagged is not None and self.json is None:
            raise ValueError(f"structured output: tagged is for json, got {given[0]}")
        if self.choice is not None:
            object.__setattr__(self, "choice", tuple(self.choice))
            if not self.choice or not all(self.choice):
                raise ValueError("structured output: choice needs at least one string, and none that is empty")


def _or_tagged(schema: str, tagged: Tagged) -> str:
    """A grammar of JSON, or of one or more tagged pieces, in the form of Lark that llguidance reads.

    Raises:
        ValueError: The schema is no JSON object.
    """
    answer = json.loads(schema)
    if not isinstance(answer, dict):
        raise ValueError("expected one")
    body = {**tagged.json, "x-guidance": _JSON_OPTIONS}
    return f"""start: answer | tagged (gap tagged)*
answer: %json {json.dumps({**answer, "x-guidance": _JSON_OPTIONS})}
tagged: {json.dumps(tagged.begin)} gap body gap {json.dumps(tagged.end)}
body: %json {json.dumps(body)}
gap: /\\n?/
"""


class GrammarError(ValueError):
    """A grammar that cannot be used, or becomes too large in the middle of an answer."""


class Matcher:
    """How far one answer has come in its grammar."""

    def __init__(self, matcher: Any, vocab_size: int):
        self._matcher, self._vocab_size = matcher, vocab_size
        self._allowed: np.ndarray | None = None  # until the next token

    def allowed(self) -> np.ndarray:
        """Which tokens may come next, [vocab] bool; at an end of the grammar, end tokens too."""
        if self._allowed is None:
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            self._check()
            self._allowed = np.zeros(self._vocab_size, bool)
            found = np.unpackbits(bits, bitorder="little")[: self._vocab_size]
            self._allowed[: found.size] = found
        return self._allowed

    def accept(self, token: int) -> bool:
        """Goes on by a token; returns whether the answer is complete, and nothing may follow."""
        self._allowed = None
        self._matcher.consume_token(token)
        self._check()
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            # What follows is the state of its parser, or the grammar that was written around the schema.
            told = _LISTING.split(self._matcher.get_error().partition("<state>")[0])[0]
            told = _PLACE.sub("", told)
            raise GrammarError(f"structured output: {' '.join(told.split())}")


class Grammars:
    """Makes matchers for one tokenizer. Thread-safe.

    Args:
        tokenizer: A tokenizer of `tokenizers`, or of transformers over one.
        vocab_size: Logits V of the graph; may be more than the tokenizer has.
        stop_tokens: Tokens that may end an answer.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, stop_tokens: Collection[int]):
        self._source, self._vocab_size, self._stop_tokens = tokenizer, vocab_size, sorted(stop_tokens)
        self._tokenizer: Any = None
        self._lock = threading.Lock()

    def matcher(self, wanted: StructuredOutput) -> Matcher:
        """A matcher at the beginning of the grammar.

        Raises:
            ImportError: llguidance is missing.
            ValueError: The schema or expression cannot be used, or the tokenizer has no tokenizer.json.
        """
        try:
            from llguidance import LLMatcher
        except ImportError as error:
            raise ImportError("structured output needs llguidance: pip install 'tcim-lite[structured]'") from error
        if wanted.json is not None:
            schema = answer_schema(wanted.json if isinstance(wanted.json, str) else json.dumps(wanted.json))
            try:
                if wanted.tagged is None:
                    grammar = LLMatcher.grammar_from_json_schema(schema, _JSON_OPTIONS)
                else:
                    grammar = LLMatcher.grammar_from_lark(_or_tagged(schema, wanted.tagged))
            except ValueError as error:
                raise ValueError(f"structured output: the schema is no JSON object: {error}") from None
        elif wanted.regex is not None:
            grammar = LLMatcher.grammar_from_regex(wanted.regex)
        else:
            choices = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in wanted.choice or ())
            grammar = LLMatcher.grammar_from_lark(f"start: {choices}")
        matcher = Matcher(LLMatcher(self._llguidance_tokenizer(), grammar, log_level=0), self._vocab_size)
        matcher._check()
        matcher.allowed()  # takes seconds for a large grammar, or finds it too large: not later, in the engine's thread
        return matcher

    def _llguidance_tokenizer(self) -> Any:
        from llguidance import LLTokenizer

        with self._lock:
            if self._tokenizer is None:
                fast = getattr(self._source, "backend_tokenizer", self._source)
                if not hasattr(fast, "to_str"):
                    raise ValueError("structured output needs a tokenizer that has a tokenizer.json")
                self._tokenizer = LLTokenizer(
                    fast.to_str(), n_vocab=self._vocab_size, eos_token=self._stop_tokens or None
                )
            return self._tokenizer
