"""Tokenizers from GGUF files give the ids of the original, or of llama.cpp's algorithm."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_checkpoints import family_config, family_tensors
from gguf_families import CHANGES
from gguf_files import gguf_tensors, metadata_of, write_gguf

from tcim_lite.llm import GenerationDefaults, Package, encode_chat, load_tokenizer
from tcim_lite.models.common.errors import CheckpointError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

DEMO = Path(__file__).parent.parent.parent / "examples/demo_checkpoint"
TEXTS = [
    "Hello, world!",
    " two  spaces\n\nand lines\t",
    "I'll pay 12345.67 for it's",
    "\u00fcber \u00e9t\u00e9 \u4f60\u597d \U0001f600",
    "<|im_start|>user\nhi<|im_end|>",
    "",
]


def package_of(tmp_path: Path, family: str, tokenizer: dict[str, Any]) -> Package:
    """A package from a GGUF file with this tokenizer and random weights."""
    tokens = tokenizer.get("tokens", [])
    config = family_config(family, vocab_size=len(tokens) or 331, **CHANGES.get(family, {}))
    arch = {"mistral": "llama", "gpt_oss": "gpt-oss"}.get(family, family)
    keys = {"general.architecture": arch, **metadata_of(config, arch)}
    template = {"tokenizer.chat_template": tokenizer.pop("chat_template")} if "chat_template" in tokenizer else {}
    keys |= {f"tokenizer.ggml.{key}": value for key, value in tokenizer.items()} | template
    path = write_gguf(tmp_path / "m.gguf", keys, gguf_tensors(config, family_tensors(config), arch))
    options: dict[str, Any] = {"prefill_length": 8, "context_length": 64, "random_weights": True}
    compile_checkpoint(CompileOptions(checkpoint=path, output=tmp_path / "out", **options))
    return Package.open(tmp_path / "out")


def demo_tokenizer(**changes: Any) -> dict[str, Any]:
    """The demo checkpoint's, as llama.cpp's converter writes it."""
    model = json.loads((DEMO / "tokenizer.json").read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": tokens,
        "token_type": [3] * 3 + [1] * (len(tokens) - 3),
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]],
        "eos_token_id": 2,
        "padding_token_id": 0,
        "chat_template": (DEMO / "chat_template.jinja").read_text(),
        **changes,
    }


def test_byte_level_bpe_gives_the_ids_of_the_original(tmp_path: Path) -> None:
    package = package_of(tmp_path, "qwen3", demo_tokenizer())
    ours, theirs = load_tokenizer(package.tokenizer_folder), load_tokenizer(DEMO)
    for text in TEXTS:
        assert ours(text)["input_ids"] == theirs(text)["input_ids"], text
        assert ours.decode(ours(text)["input_ids"]) == text
    messages = [{"role": "user", "content": "What is 12 + 30?"}]
    assert encode_chat(ours, messages) == encode_chat(theirs, messages)
    assert package.stop_tokens(ours) == {2}
    assert (ours.eos_token, ours.pad_token) == ("<|im_end|>", "<|endoftext|>")


@pytest.mark.oracle
def test_other_tools_take_the_package_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="it is what reads the folder")
    folder = str(package_of(tmp_path, "qwen3", demo_tokenizer()).folder)
    assert transformers.AutoConfig.from_pretrained(folder).model_type == "qwen3"
    assert transformers.AutoTokenizer.from_pretrained(folder)("hello")["input_ids"]


def test_llama_3_splits_digits_by_three_and_begins_texts(tmp_path: Path) -> None:
    changes = {"pre": "llama-bpe", "bos_token_id": 0, "eot_token_id": 1}
    package = package_of(tmp_path, "llama", demo_tokenizer(**changes))
    ours = load_tokenizer(package.tokenizer_folder)
    assert ours("hello")["input_ids"][0] == 0
    words = [word for word, _ in ours.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a1234567")]
    assert words == ["a", "123", "456", "7"]
    assert GenerationDefaults.read(package.tokenizer_folder).stop_tokens == {1, 2}
    quiet = demo_tokenizer(**changes, add_bos_token=False)
    (tmp_path / "quiet").mkdir()
    assert load_tokenizer(package_of(tmp_path / "quiet", "llama", quiet).tokenizer_folder)("hello")["input_ids"][0] != 0


def test_gpt_oss_splits_at_capitals_and_keeps_contractions(tmp_path: Path) -> None:
    """The words of tiktoken's o200k_base."""
    package = package_of(tmp_path, "gpt_oss", demo_tokenizer(pre="gpt-4o"))
    splitter = load_tokenizer(package.tokenizer_folder).backend_tokenizer.pre_tokenizer
    text = "It'll say HelloWORLD 1234/\nx"
    words = [text[begin:end] for _, (begin, end) in splitter.pre_tokenize_str(text)]
    assert words == ["It'll", " say", " Hello", "WORLD", " ", "123", "4", "/\n", "x"]
    assert package.stop_tokens(load_tokenizer(package.tokenizer_folder)) == {2}


@pytest.mark.parametrize(
    ("family", "pre", "words"),
    [
        ("granite", "refact", ["It", "'ll", " say", " ", "1", "2", "3", "4", "!!", "\n", "x"]),
        ("phi3", "dbrx", ["It", "'ll", " say", " ", "123", "4", "!!\n", "x"]),
        ("smollm3", "smaug-bpe", ["It", "'ll", " say", " ", "123", "4", "!!\n", "x"]),
        ("seed_oss", "seed-coder", ["It", "'ll", " say", " ", "1", "2", "3", "4", "!!", "\n", "x"]),
    ],
)
def test_words_of_other_families(tmp_path: Path, family: str, pre: str, words: list[str]) -> None:
    package = package_of(tmp_path, family, demo_tokenizer(pre=pre))
    splitter = load_tokenizer(package.tokenizer_folder).backend_tokenizer.pre_tokenizer
    text = "It'll say 1234!!\nx"
    got = [text[begin:end] for _, (begin, end) in splitter.pre_tokenize_str(text)]
    assert got == words


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("afmoe", "It|'ll| say| |12|345|!!\n|\u6211|x| Ab\u0301C"),
        ("bailingmoe2", "It|'ll| say| |1|2|3|4|5|!!\n|\u6211x| Ab|\u0301C"),
        ("deepseek-coder", "It|'|ll| say| |1|2|3|4|5|!!|\n|\u6211|x| Ab|\u0301|C"),
        ("deepseek-v3", "It|'ll| say| |123|45|!!\n|\u6211|x| Ab\u0301C"),
        ("default", "It|'|ll| say| |123|45|!!|\n|\u6211x| Ab|\u0301|C"),
        ("exaone-moe", "It|'ll| say| |1|2|3|4|5|!!\n|\u6211x Ab\u0301C"),
        ("jais-2", "It|'ll| say| |123|45|!!\n|\u6211x| Ab|\u0301C"),
        ("kimi-k2", "It'll| say| |123|45|!!\n|\u6211|x| Ab\u0301|C"),
        ("laguna", "It|'ll| say| |1|2|3|4|5|!!|\n|\u6211x| Ab|\u0301C"),
        ("lfm2", "It|'ll| say| |123|45|!!\n|\u6211x| Ab|\u0301C"),
        ("minicpm5", "It|'ll| say| |123|45|!!\n|\u6211x| Ab|\u0301C"),
        ("olmo", "It|'ll| say| 12345|!!|\n|\u6211x| Ab|\u0301|C"),
        ("qwen35", "It|'ll| say| |1|2|3|4|5|!!\n|\u6211x| Ab\u0301C"),
        ("starcoder", "It|'ll| say| |1|2|3|4|5|!!|\n|\u6211x| Ab|\u0301|C"),
        ("tiny_aya", "It'll| say| |12|345|!!\n|\u6211x| Ab\u0301|C"),
        ("youtu", "It'll| say| |1|2|3|4|5|!!\n|\u6211|x| Ab\u0301|C"),
    ],
)
def test_words_by_the_kinds_that_the_converter_names(tmp_path: Path, pre: str, words: str) -> None:
    package = package_of(tmp_path, "qwen3", demo_tokenizer(pre=pre))
    splitter = load_tokenizer(package.tokenizer_folder).backend_tokenizer.pre_tokenizer
    text = "It'll say 12345!!\n\u6211x Ab\u0301C"
    got = [text[begin:end] for _, (begin, end) in splitter.pre_tokenize_str(text)]
    assert "|".join(got) == words


def test_gemma_4_merges_in_the_order_of_its_list_without_a_blank_before(tmp_path: Path) -> None:
    """`tokenizer.ggml.model` is gemma4; the converter also writes scores, which llama.cpp does not read."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", *bytes_, "\u2581", "a", "b", "ab", "\u2581ab", "b\u2581"]
    tokenizer = {
        "model": "gemma4",
        "tokens": tokens,
        "scores": [-1000.0] * len(tokens),
        "token_type": [3] * 4 + [6] * 256 + [1] * (len(tokens) - 260),
        "merges": ["b \u2581", "a b", "\u2581 ab"],
        "bos_token_id": 2,
        "eos_token_id": 1,
        "unknown_token_id": 3,
        "add_bos_token": True,
        "add_space_prefix": False,
    }
    ours = load_tokenizer(package_of(tmp_path, "gemma4", tokenizer).tokenizer_folder)
    text = "ab ab\u00e9"
    got = ours.convert_ids_to_tokens(ours(text)["input_ids"])
    assert got == ["<bos>", "a", "b\u2581", "ab", "<0xC3>", "<0xA9>"]
    assert ours.decode(ours(text, add_special_tokens=False)["input_ids"]) == text


def test_a_word_of_glm_that_is_a_token_is_not_merged(tmp_path: Path) -> None:
    package = package_of(tmp_path, "glm4", demo_tokenizer(pre="glm4"))
    tokenizer = json.loads((package.tokenizer_folder / "tokenizer.json").read_text())
    assert tokenizer["model"]["ignore_merges"] is True


PIECES = [
    "\u2581",
    "a",
    "b",
    "c",
    "ab",
    "abc",
    "bc",
    "\u2581a",
    "\u2581ab",
    "ca",
    "cab",
    "\u2581c",
    "aa",
    "\u2581\u2581",
]


def sentence_piece(**changes: Any) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    scores = [0.0] * 259 + [-float(rank) for rank in np.random.default_rng(4).permutation(len(PIECES))]
    return {
        "model": "llama",
        "tokens": tokens,
        "scores": scores,
        "token_type": [2, 3, 3] + [6] * 256 + [1] * len(PIECES),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        **changes,
    }


def by_scores(text: str, tokens: list[str], scores: list[float]) -> list[int]:
    """llama.cpp's llm_tokenizer_spm: the adjacent pair of the best score joins, the first of equals."""
    parts = list("\u2581" + text.replace(" ", "\u2581"))
    while True:
        joined = [
            (scores[tokens.index(a + b)], -i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in tokens
        ]
        if not joined:
            break
        place = -max(joined)[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    ids: list[int] = []
    for part in parts:
        ids += [tokens.index(part)] if part in tokens else [3 + byte for byte in part.encode()]
    return ids


def test_sentence_piece_merges_by_score(tmp_path: Path) -> None:
    tokenizer = sentence_piece()
    ours = load_tokenizer(package_of(tmp_path, "mistral", dict(tokenizer)).tokenizer_folder)
    rng = np.random.default_rng(5)
    texts = ["".join(rng.choice(list("abc  "), rng.integers(1, 12))) for _ in range(60)] + ["a\u00fcb", "\U0001f600 c"]
    for text in texts:
        ids = ours(text)["input_ids"]
        assert ids == [1, *by_scores(text, tokenizer["tokens"], tokenizer["scores"])], text
        assert ours.decode(ids, skip_special_tokens=True) == text


def test_special_tokens_of_phi_3_take_the_spaces_behind_them(tmp_path: Path) -> None:
    pieces = sentence_piece()
    tokenizer = sentence_piece(
        tokens=[*pieces["tokens"], "<|user|>", "<|endoftext|>"],
        scores=[*pieces["scores"], -1000.0, -1000.0],
        token_type=[*pieces["token_type"], 3, 3],
    )
    user, end = (tokenizer["tokens"].index(token) for token in ("<|user|>", "<|endoftext|>"))
    phi, mistral = tmp_path / "phi3", tmp_path / "mistral"
    for folder in (phi, mistral):
        folder.mkdir()
    ours = load_tokenizer(package_of(phi, "phi3", dict(tokenizer)).tokenizer_folder)
    others = load_tokenizer(package_of(mistral, "mistral", dict(tokenizer)).tokenizer_folder)
    assert ours("<|user|>\n  ab")["input_ids"] == ours("<|user|>ab")["input_ids"]
    assert others("<|user|>\nab")["input_ids"] != others("<|user|>ab")["input_ids"]
    assert ours("<|user|>")["input_ids"] == [1, user]
    assert ours("<|endoftext|>\nab")["input_ids"] != ours("<|endoftext|>ab")["input_ids"]
    assert ours("<|endoftext|>")["input_ids"] == [1, end]


@pytest.mark.filterwarnings("ignore:.*has no tokenizer files")
@pytest.mark.parametrize("pre", ["chameleon", None])
def test_another_kind_of_tokenizer_is_left_out_with_a_warning(tmp_path: Path, pre: str | None) -> None:
    tokenizer = {key: value for key, value in demo_tokenizer(pre=pre).items() if value is not None}
    with pytest.warns(
        match=rf"tokenizer 'gpt2' with the split {pre!r} is not known here.*known are llama, gemma4, and gpt2"
    ):
        package = package_of(tmp_path, "qwen3", tokenizer)
    assert not (package.tokenizer_folder / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_type": [1]}, "has 1536 tokens with 1 types and an embedding of 1536 rows"),
        ({"eos_token_id": 1536}, "eos_token_id is 1536, expected one of its 1536 tokens"),
        ({"merges": ["no merge"]}, "the merge 'no merge' is not of two tokens to a third"),
        ({"merges": ["none"]}, "the merge 'none' is not of two tokens to a third"),
        ({"tokens": [1, 2]}, r"tokenizer.ggml.tokens is \[1, 2\], expected a list of str"),
        ({"tokens": "ab"}, "tokenizer.ggml.tokens is 'ab', expected a list of str"),
        ({"token_type": ["x"]}, r"tokenizer.ggml.token_type is \['x'\], expected a list of int"),
        ({"merges": [1]}, r"tokenizer.ggml.merges is \[1\], expected a list of str"),
        ({"model": "llama", "scores": ["x"]}, r"tokenizer.ggml.scores is \['x'\], expected a list of float"),
    ],
)
def test_lists_that_contradict_each_other_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        package_of(tmp_path, "qwen3", demo_tokenizer(**changes))


def test_scores_of_every_piece_are_needed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has 273 tokens and 1 scores"):
        package_of(tmp_path, "mistral", sentence_piece(scores=[0.0]))
