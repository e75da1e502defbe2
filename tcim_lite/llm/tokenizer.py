"""The tokenizer of a package and its chat template."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .limited import LimitedWorkError, one_line, run_limited

_TEMPLATE_FILES = ("chat_template.jinja", "tokenizer_config.json")
# Of apply_chat_template, what decides on the form of the result.
_OUTPUT_ARGUMENTS = {
    "add_generation_prompt",
    "padding",
    "return_dict",
    "return_tensors",
    "tokenize",
    "tokenizer_kwargs",
}
_MOST_TOKENIZER_BYTES = 256 << 20


def load_tokenizer(folder: str | Path) -> Any:
    """The Hugging Face tokenizer saved in `folder`, with its chat template. Never looks outside the folder.

    Raises:
        ImportError: transformers is missing; it comes with the extra `[chat]`.
        FileNotFoundError: The folder holds no tokenizer.
        ValueError: A file of the tokenizer cannot be used; the message is one line that names it.
    """
    folder = Path(folder)
    _check_tokenizer_files(folder)
    whole = (folder / "tokenizer.json").exists()
    if not whole and not (folder / "vocab.json").exists():
        raise FileNotFoundError(f"no tokenizer in {folder}; compile a checkpoint folder that has tokenizer.json")
    # Without it transformers remarks that there is no torch, which a tokenizer does not need.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        # AutoTokenizer imports torch where there is one; tokenizer.json needs neither it nor a class of its own.
        if whole:
            from transformers import PreTrainedTokenizerFast as Tokenizer
        else:
            from transformers import AutoTokenizer as Tokenizer
    except ImportError as error:
        raise ImportError("the tokenizer needs transformers: pip install 'tcim-lite[chat]'") from error
    try:
        return Tokenizer.from_pretrained(str(folder), local_files_only=True)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a Rust panic is no Exception
        file = folder / ("tokenizer.json" if whole else "vocab.json")
        raise ValueError(f"{file}: the tokenizer cannot be loaded: {one_line(error)}") from None


def encode_chat(
    tokenizer: Any,
    messages: list[dict[str, Any]],
    *,
    raw: bool | None = None,
    enable_thinking: bool | None = None,
    expand: Callable[[str], str] | None = None,
    **template_arguments: Any,
) -> list[int]:
    """Token ids of a conversation up to where the assistant's next reply begins, by the tokenizer's chat template.

    Args:
        tokenizer: From `load_tokenizer`.
        messages: With "role" and "content".
        raw: True leaves the template out: the contents one after the other, with no more than the special tokens that
            the tokenizer puts around every text. None does so where the tokenizer has no template, as that of a base
            model.
        enable_thinking: For templates of models that can think before they answer; None leaves it to the template.
        expand: What becomes of the text that the template makes, before it is split into tokens: placeholders of images
            become as many as these have tokens (`ImagePrompts.expand`).
        template_arguments: Further variables of the template, such as `tools`; it ignores those that it does not know.

    Raises:
        ValueError: The template or the tokenizer fails, takes 10 s, or needs too much memory; the message is one line
            that names the file. Or `raw` is False and there is no template.
        TypeError: A template argument that would change what is returned.
    """
    if reserved := _OUTPUT_ARGUMENTS & template_arguments.keys():
        raise TypeError(f"encode_chat: {', '.join(sorted(reserved))} cannot be chosen; it returns a list of token ids")
    if enable_thinking is not None:
        template_arguments["enable_thinking"] = enable_thinking
    has_template = bool(getattr(tokenizer, "chat_template", None) or template_arguments.get("chat_template"))
    if raw is False and not has_template:
        raise ValueError(
            f"{_template_file(tokenizer)}: there is no chat template; encode_chat(..., raw=True) needs none"
        )

    def encode() -> list[int]:
        if raw or not has_template:
            return list(tokenizer("".join(message["content"] for message in messages))["input_ids"])
        if expand is not None:
            text = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False, **template_arguments
            )
            return list(tokenizer(expand(text), add_special_tokens=False)["input_ids"])
        encoded = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, **template_arguments
        )
        return list(encoded["input_ids"])

    try:
        return run_limited(encode)
    except LimitedWorkError as error:
        what = "the tokenizer" if raw or not has_template else "the chat template"
        raise ValueError(f"{_template_file(tokenizer)}: {what} fails: {error}") from None


def _template_file(tokenizer: Any) -> Path:
    folder = Path(getattr(tokenizer, "name_or_path", "") or "")
    return next((folder / name for name in _TEMPLATE_FILES if (folder / name).is_file()), folder)


def _check_tokenizer_files(folder: Path) -> None:
    """Refuses what transformers would read without an end, or for very long."""
    for path in folder.glob("*"):
        if path.is_dir():
            continue
        if not path.is_file():
            raise ValueError(f"{path}: is not a regular file; copy the whole package folder again")
        if path.stat().st_size > _MOST_TOKENIZER_BYTES:
            raise ValueError(
                f"{path}: has {path.stat().st_size} bytes; a tokenizer's file has at most {_MOST_TOKENIZER_BYTES}"
            )
