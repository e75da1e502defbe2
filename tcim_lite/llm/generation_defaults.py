"""What a checkpoint's generation_config.json says about choosing tokens and ending an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .json_object import read_object
from .sampling import Sampler


@dataclass(frozen=True, kw_only=True)
class GenerationDefaults:
    """How a package's answers are made where the caller does not say otherwise.

    A key that is absent or null has the value below, which is transformers' own.

    Attributes:
        stop_tokens: ids of `eos_token_id`, one or several; where generation_config.json has none, those of config.json.
        do_sample: whether to sample; False is greedy, whatever temperature, top_k, top_p and min_p say.
        temperature: as in `Sampler`, as are the others; 0 is greedy too.
        top_k: 50 where the file does not say.
        top_p: 1 keeps all.
        min_p: 0 keeps all.
        repetition_penalty: 1 changes nothing. It acts on greedy choices as well.
    """

    stop_tokens: frozenset[int] = frozenset()
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def sampler(self, seed: int | None = None, **changes: Any) -> Sampler:
        """The sampler these values describe; `changes` replace arguments of it.

        Raises:
            ValueError: A value out of its range.
            TypeError: `Sampler` has no such argument.
        """
        values: dict[str, Any] = {"temperature": 0.0, "repetition_penalty": self.repetition_penalty}
        if self.do_sample:
            values |= {name: getattr(self, name) for name in ("temperature", "top_k", "top_p", "min_p")}
        return Sampler(**(values | changes), seed=seed)

    @classmethod
    def read(cls, folder: str | Path) -> GenerationDefaults:
        """Reads generation_config.json and config.json in `folder`; a file that is absent says nothing.

        Raises:
            ValueError: A file is not what it should be; the message is one line that names it.
        """
        path = Path(folder) / "generation_config.json"
        found, config = (read_object(file) for file in (path, path.with_name("config.json")))
        values = {name: check(found[name]) for name, check in _CHECKS.items() if found.get(name) is not None}
        bad = next((name for name, value in values.items() if value is None), None)
        if bad is not None:
            raise ValueError(f"{path}: {bad} is {found[bad]!r:.60}, expected {_EXPECTED[bad]}")
        for file, stop in (
            (path, found.get("eos_token_id")),
            (path.with_name("config.json"), config.get("eos_token_id")),
        ):
            if stop is None:
                continue
            ids = stop if isinstance(stop, list) else [stop]
            if not all(_is_whole(token) and token >= 0 for token in ids):
                raise ValueError(f"{file}: eos_token_id is {stop!r:.60}, expected a token id or a list of them")
            return cls(stop_tokens=frozenset(ids), **values)
        return cls(**values)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(accepts: Callable[[float], bool]) -> Callable[[Any], float | None]:
    return lambda value: float(value) if (_is_whole(value) or isinstance(value, float)) and accepts(value) else None


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "do_sample": lambda value: value if isinstance(value, bool) else None,
    "temperature": _number(lambda value: 0 <= value < 1e6),
    "top_k": lambda value: value if _is_whole(value) and value >= 0 else None,
    "top_p": _number(lambda value: 0 < value <= 1),
    "min_p": _number(lambda value: 0 <= value <= 1),
    "repetition_penalty": _number(lambda value: 0 < value < 1e6),
}
_EXPECTED = {
    "do_sample": "true or false",
    "temperature": "a number from 0 on",
    "top_k": "a whole number from 0 on",
    "top_p": "a number above 0 and at most 1",
    "min_p": "a number from 0 to 1",
    "repetition_penalty": "a number above 0",
}
