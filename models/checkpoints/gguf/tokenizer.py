"""The tokenizer of a GGUF file as the files of a Hugging Face folder."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...common.errors import CheckpointError, CompileWarning
from .splits import SPLITS, Split

# Kinds of tokens.
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
_SPACE = "\u2581"  # of SentencePiece
# Phi-3's other special tokens take the spaces behind them with them; llama.cpp knows it by the name of the model.
_PHI3_KEEPS_SPACES = ("<unk>", "<s>", "<|endoftext|>")


def tokenizer_files(metadata: Mapping[str, Any], config: Mapping[str, Any], where: str) -> dict[str, bytes]:
    """Returns config.json, and the files of the tokenizer where it is of a kind that has them here.

    Args:
        metadata: Of the GGUF file.
        config: Its config.json, without the numbers of tokens.
        where: Names the file in messages.

    Raises:
        CheckpointError: The tokenizer's lists contradict each other or the embedding.

    Warns:
        CompileWarning: A tokenizer of another kind.
    """
    ids = {
        f"{name}_token_id": metadata[f"tokenizer.ggml.{key}_token_id"]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if f"tokenizer.ggml.{key}_token_id" in metadata
    }
    ends = [
        metadata[f"tokenizer.ggml.{key}_token_id"]
        for key in ("eos", "eot")
        if f"tokenizer.ggml.{key}_token_id" in metadata
    ]
    generation: dict[str, Any] = {name: ids[name] for name in ("bos_token_id", "pad_token_id") if name in ids}
    files: dict[str, Mapping[str, Any]] = {
        "config.json": {**config, **{name: ids[name] for name in ids if name != "unk_token_id"}},
        "generation_config.json": {**generation, "eos_token_id": list(dict.fromkeys(ends))},
    }
    tokens = _listed(metadata, "tokens", str, where) or []
    for name, number in [*ids.items(), *(("eot_token_id", number) for number in ends)]:
        if tokens and not (isinstance(number, int) and 0 <= number < len(tokens)):
            raise CheckpointError(f"{where}: {name} is {number!r}, expected one of its {len(tokens)} tokens")
    texts: dict[str, str] = {}
    if tokens and (tokenizer := _tokenizer(metadata, tokens, config["vocab_size"], where)) is not None:
        files["tokenizer.json"] = tokenizer
        special = {name.removesuffix("_id"): tokens[number] for name, number in ids.items()}
        files["tokenizer_config.json"] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "model_max_length": config["max_position_embeddings"],
            **special,
        }
        if isinstance(template := metadata.get("tokenizer.chat_template"), str):
            texts["chat_template.jinja"] = template
    encoded = {name: json.dumps(content, ensure_ascii=False) for name, content in files.items()}
    return {name: text.encode("utf-8", "replace") for name, text in {**encoded, **texts}.items()}


def _listed(metadata: Mapping[str, Any], name: str, kind: type, where: str) -> list[Any] | None:
    """A list of the tokenizer; None where the file has none.

    Raises:
        CheckpointError: It is no list, or one of something else.
    """
    value = metadata.get(f"tokenizer.ggml.{name}")
    found = value.tolist() if isinstance(value, np.ndarray) else value
    if found is not None and not (isinstance(found, list) and all(type(each) is kind for each in found)):
        raise CheckpointError(f"{where}: tokenizer.ggml.{name} is {found!r:.60}, expected a list of {kind.__name__}")
    return found


def _tokenizer(
    metadata: Mapping[str, Any], tokens: Sequence[str], vocab_size: int, where: str
) -> dict[str, Any] | None:
    """Returns tokenizer.json; None, with a warning, for a kind that is not known."""
    kinds = _listed(metadata, "token_type", int, where)
    kinds = [1] * len(tokens) if kinds is None else kinds
    if len(kinds) != len(tokens) or len(tokens) > vocab_size:
        raise CheckpointError(
            f"{where} has {len(tokens)} tokens with {len(kinds)} types and an embedding of {vocab_size} rows"
        )
    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if model == "gpt2" and isinstance(pre, str) and pre in SPLITS:
        parts = _byte_level(metadata, tokens, SPLITS[pre], where)
    elif model == "llama":
        parts = _sentence_piece(metadata, tokens, kinds, where)
    elif model == "gemma4":
        parts = _gemma4(metadata, tokens, where)
    else:
        warnings.warn(
            f"{where}: its tokenizer {model!r} with the split {pre!r} is not known here, so the package has none; "
            f"known are llama, gemma4, and gpt2 with {', '.join(SPLITS)}. Put the tokenizer.json of the original model "
            "into the package's folders",
            CompileWarning,
            stacklevel=4,
        )
        return None
    phi3 = metadata.get("general.architecture") == "phi3" and model == "llama"
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": phi3 and token not in _PHI3_KEEPS_SPACES,
            "normalized": False,
            "special": kind != _USER_DEFINED,
        }
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _USER_DEFINED) or (kind == _UNKNOWN and model == "llama")
    ]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts}


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str], split: Split, where: str) -> dict[str, Any]:
    """BPE over bytes, as GPT-2 has it."""
    vocab = _vocab(tokens)
    merges = _given_merges(metadata, vocab, where)
    return {
        "normalizer": {"type": "NFC"} if split.nfc else None,
        "pre_tokenizer": split.pre_tokenizer(),
        "post_processor": _around(metadata, tokens, {"bos": split.bos, "eos": False}),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _bpe(vocab, merges, ignore_merges=split.whole_words),
    }


def _given_merges(metadata: Mapping[str, Any], vocab: Mapping[str, int], where: str) -> list[list[str]]:
    merges = [merge.split(" ", 1) for merge in _listed(metadata, "merges", str, where) or []]
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= vocab.keys():
            raise CheckpointError(f"{where}: the merge {' '.join(merge)!r:.80} is not of two tokens to a third")
    return merges


def _gemma4(metadata: Mapping[str, Any], tokens: Sequence[str], where: str) -> dict[str, Any]:
    """BPE over characters, with blanks as SentencePiece writes them and merges in the order of a list."""
    vocab = _vocab(tokens)
    number = metadata.get("tokenizer.ggml.unknown_token_id")
    unknown = None if number is None else tokens[number]
    decoders = [{"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}, {"type": "ByteFallback"}]
    return {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
        "pre_tokenizer": None,
        "post_processor": _around(metadata, tokens, {"bos": True, "eos": False}),
        "decoder": {"type": "Sequence", "decoders": [*decoders, {"type": "Fuse"}]},
        "model": _bpe(
            vocab, _given_merges(metadata, vocab, where), unk_token=unknown, fuse_unk=True, byte_fallback=True
        ),
    }


def _sentence_piece(
    metadata: Mapping[str, Any], tokens: Sequence[str], kinds: Sequence[int], where: str
) -> dict[str, Any]:
    """SentencePiece's BPE: pairs join in the order of what they give, by its score."""
    scores = _listed(metadata, "scores", float, where)
    if scores is None or len(scores) != len(tokens):
        raise CheckpointError(f"{where} has {len(tokens)} tokens and {0 if scores is None else len(scores)} scores")
    vocab = _vocab(tokens)
    plain = [token for token, kind in zip(tokens, kinds, strict=True) if kind not in (_UNKNOWN, _CONTROL, _BYTE)]
    merges = sorted(_merges(plain, vocab), key=lambda pair: -float(scores[vocab["".join(pair)]]))
    unknown = next((token for token, kind in zip(tokens, kinds, strict=True) if kind == _UNKNOWN), None)
    space = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    undo: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}]
    undo += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    undo += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    return {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [*([{"type": "Prepend", "prepend": _SPACE}] if prefix else []), space],
        },
        "pre_tokenizer": None,
        "post_processor": _around(metadata, tokens, {"bos": True, "eos": False}),
        "decoder": {"type": "Sequence", "decoders": undo},
        "model": _bpe(vocab, [list(pair) for pair in merges], unk_token=unknown, fuse_unk=True, byte_fallback=True),
    }


def _merges(tokens: Sequence[str], vocab: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for token in tokens:
        pairs = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        fitting = [(vocab[a], vocab[b], a, b) for a, b in pairs if a in vocab and b in vocab]
        yield from ((first, second) for _, _, first, second in sorted(fitting))


def _vocab(tokens: Sequence[str]) -> dict[str, int]:
    vocab: dict[str, int] = {}
    for number, token in enumerate(tokens):
        vocab.setdefault(token, number)
    return vocab


def _bpe(vocab: Mapping[str, int], merges: Sequence[Sequence[str]], **changes: Any) -> dict[str, Any]:
    plain = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    return {**plain, **changes, "vocab": vocab, "merges": merges}


def _around(metadata: Mapping[str, Any], tokens: Sequence[str], defaults: Mapping[str, bool]) -> dict[str, Any] | None:
    """The special tokens that are put around every text."""
    sides: dict[str, list[dict[str, Any]]] = {"bos": [], "eos": []}
    known = {}
    for side, default in defaults.items():
        number = metadata.get(f"tokenizer.ggml.{side}_token_id")
        if number is not None and metadata.get(f"tokenizer.ggml.add_{side}_token", default):
            sides[side] = [{"SpecialToken": {"id": tokens[number], "type_id": 0}}]
            known[tokens[number]] = {"id": tokens[number], "ids": [number], "tokens": [tokens[number]]}
    if not known:
        return None
    one, two = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [*sides["bos"], one, *sides["eos"]],
        "pair": [*sides["bos"], one, *sides["eos"], *sides["bos"], two, *sides["eos"]],
        "special_tokens": known,
    }
