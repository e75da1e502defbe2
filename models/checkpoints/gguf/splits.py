"""How byte-level tokenizers of GGUF files cut text into words before they merge bytes, by `tokenizer.ggml.pre`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT_4 = _QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")  # tiktoken's cl100k_base
_FIRST, _UPPER, _LOWER = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTED = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"


def _cased(ending: str, digits: str, slash: str = "/", but: str = "") -> str:
    """Words in which a capital behind a small letter begins another; without characters of the class `but`."""
    without = f"&&[^{but}]]" if but else "]"
    upper, lower = _UPPER[:-1] + without, _LOWER[:-1] + without
    words = f"{_FIRST}{upper}*{lower}+{ending}|{_FIRST}{upper}+{lower}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n{slash}]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class Split:
    """How a byte-level BPE cuts text into words before its merges.

    Attributes:
        regexes: Each cuts what those before have left whole; matches and what is between them are words.
        gpt2: GPT-2's regex comes last, which the tokenizers package has built in.
        digits: Before all, each digit is a word.
        nfc: Text is normalised first.
        whole_words: A word that is a token is not merged.
        bos: Texts begin with the first token unless the file says otherwise.
    """

    regexes: tuple[str, ...] = ()
    gpt2: bool = False
    digits: bool = False
    nfc: bool = False
    whole_words: bool = False
    bos: bool = False

    def pre_tokenizer(self) -> dict[str, Any]:
        """Returns that of tokenizer.json."""
        steps: list[dict[str, Any]] = [{"type": "Digits", "individual_digits": True}] if self.digits else []
        for regex in self.regexes:
            steps.append({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False})
        byte_level = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": self.gpt2,
        }
        return {"type": "Sequence", "pretokenizers": [*steps, byte_level]} if steps else byte_level


_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # GPT-2's
_GPT_2, _DIGITS = Split(gpt2=True), Split(gpt2=True, digits=True)
_LLAMA3 = Split((_GPT_4,), whole_words=True, bos=True)
_GPT_4O = _cased(_CONTRACTED, r"\p{N}{1,3}")  # tiktoken's o200k_base
_BY_THREE = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"  # groups of three digits, counted from the last
_PUNCTUATED = (  # of ASCII, at which a word may begin
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK3 = Split((r"\p{N}{1,3}", _KANA, _PUNCTUATED))
_ASIAN = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
    "\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_SPACES = "|".join(rf"\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4))
# Of the models that are compiled here, and of others with their architectures. Files of early 2024 have no such key.
SPLITS: Mapping[str, Split] = {
    "afmoe": Split((_BY_THREE, _ASIAN, _PUNCTUATED)),
    "bailingmoe2": Split(
        (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",)
    ),
    "chatglm-bpe": Split((_GPT_4,)),
    "cohere2moe": Split((_BY_THREE, _GPT_4O)),
    "command-r": Split(gpt2=True, digits=True, nfc=True),
    "dbrx": Split((_GPT_4,)),  # Phi-4, OLMo 2
    "deepseek-coder": Split(
        ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}")
    ),
    "deepseek-r1-qwen": Split((_QWEN,)),
    "deepseek-v3": _DEEPSEEK3,
    "default": Split((r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", "[0-9][0-9][0-9]")),
    "exaone": _DIGITS,
    "exaone-moe": Split(
        (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|"
            r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    "exaone4": _GPT_2,
    "falcon-h1": _LLAMA3,
    "falcon3": _LLAMA3,
    "falcon": Split((r"[\p{P}\$\+<=>\^~\|`]+", _WORDS, "[0-9][0-9][0-9]")),
    "glm4": Split((_GPT_4,), whole_words=True),
    "gpt-2": _GPT_2,
    "gpt-4o": Split((_GPT_4O,), whole_words=True),  # gpt-oss
    "granite-docling": _GPT_2,
    "hunyuan": Split((_QWEN,)),
    "hunyuan-dense": _DEEPSEEK3,
    "jais-2": Split((_GPT_4.replace(r"\s+(?!\S)|\s+", _SPACES + r"|\s{1,2}(?!\S)|\s{1}"),)),
    "joyai-llm": _DEEPSEEK3,
    "kanana2": Split((_GPT_4O,)),
    "kimi-k2": Split((r"\p{Han}+|" + _cased(_CONTRACTED, r"\p{N}{1,3}", "", r"\p{Han}"),)),
    "laguna": Split((r"[^\n]+|[\n]+", _QWEN)),
    "lfm2": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "mellum": _GPT_2,
    "mellum2": _DIGITS,
    "minicpm5": Split((r"\p{N}{1,3}", _QWEN.replace(r"\p{N}|", r"\p{N}+|")), whole_words=True),
    "minimax-m2": Split((_GPT_4O,)),
    "mpt": Split(gpt2=True, nfc=True),
    "olmo": Split(gpt2=True, nfc=True),  # GPT-NeoX
    "phi-2": _GPT_2,
    "qwen2": Split((_QWEN,), nfc=True),
    "qwen35": Split(
        (_QWEN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r" ?[^\s\p{L}\p{N}]", r" ?[^\s\p{L}\p{M}\p{N}]"),),
        nfc=True,
    ),
    "refact": _DIGITS,  # Granite
    "seed-coder": Split((_QWEN.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+"),)),  # Seed-OSS
    "smaug-bpe": Split((_GPT_4,), whole_words=True),  # SmolLM3
    "smollm": _DIGITS,
    "solar-open": Split((_QWEN,)),
    "stablelm2": Split((_QWEN,)),
    "starcoder": _DIGITS,
    "tekken": Split((_cased("", r"\p{N}"),), whole_words=True, bos=True),
    "tiny_aya": Split((_BY_THREE, _GPT_4O)),
    "youtu": Split((_YOUTU, _cased(_CONTRACTED, r"\p{N}")), whole_words=True),
}
