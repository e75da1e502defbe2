"""Encoders without a server: what the files of a checkpoint say, pooling, and packages that cannot be used."""

from __future__ import annotations

import functools
import re
import shutil

import numpy as np
import pytest
import warm_python
from llm_packages import DEMO_CHECKPOINT

from tcim_lite.llm.encoders import Encoder, EncoderFacts, EncoderPackage, EncoderPrompt, pooled
from tcim_lite.models.common.errors import CompileError

onnx = pytest.importorskip("onnx", reason="compiles ONNX")

from sums_encoder import CONFIG, IDS, compile_sums, sums_of_ids, write

from tcim_lite.models.onnx import OnnxOptions, compile_onnx, for_lengths


@pytest.fixture
def package(tmp_path):
    return functools.partial(compile_sums, tmp_path)


def test_vectors_are_pooled_without_padding_and_do_not_depend_on_the_graph(package):
    encoder = Encoder(EncoderPackage.open(package(pooling="mean")))
    assert (encoder.longest, encoder.batch, encoder.width, encoder.ranks) == (8, 2, 4, False)
    assert [encoder.length_of([1] * count) for count in (1, 4, 5, 8)] == [4, 4, 8, 8]
    for prompts in ([[1, 2, 3]], [[5], [7, 9, 11, 1]], [[5, 1, 1, 1, 2], [1] * 8]):
        for prompt, vector in zip(prompts, encoder.run(prompts), strict=True):
            np.testing.assert_allclose(vector, np.mean(prompt) * np.arange(1, 5), rtol=1e-6)


def test_segments_are_told_unless_the_tokenizer_has_none(package):
    prompt = EncoderPrompt([5, 7, 9], [0, 0, 1])
    for names, last in ((None, 10), (list(IDS), 10), (list(IDS[:2]), 9)):
        told = {} if names is None else {"model_input_names": names}
        folder = package(model=sums_of_ids(inputs=IDS), pooling="lasttoken", tokenizer_config=told)
        assert Encoder(EncoderPackage.open(folder)).run([prompt])[0][0] == last


def test_every_pooling_is_that_of_sentence_transformers():
    rows = np.array([[1, 5], [3, -2], [8, 0]], np.float16)
    want = {
        "cls": [1, 5],
        "max": [8, 5],
        "mean": [4, 1],
        "mean_sqrt_len_tokens": [12 / 3**0.5, 3 / 3**0.5],
        "weightedmean": [(1 + 6 + 24) / 6, (5 - 4) / 6],
        "lasttoken": [8, 0],
    }
    for mode, vector in want.items():
        np.testing.assert_allclose(pooled(rows, [mode]), vector, rtol=1e-6)
    np.testing.assert_allclose(pooled(rows, list(want)), np.concatenate(list(want.values())), rtol=1e-6)


def facts(folder, **files) -> EncoderFacts:
    shutil.rmtree(folder / "facts", ignore_errors=True)
    write(folder / "facts", **files)
    return EncoderFacts.read(folder / "facts")


def test_facts_are_those_of_the_files(tmp_path):
    none = facts(tmp_path)
    assert (none.pad_token, none.pooling, none.labels, none.activation, none.max_tokens) == (
        0,
        (),
        (),
        "identity",
        None,
    )
    old = {"word_embedding_dimension": 4, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    old |= {
        "pooling_mode_max_tokens": True,
        "pooling_mode_lasttoken": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    assert facts(tmp_path, **{"1_Pooling__config": old}).pooling == ("max", "mean")
    new = {"embedding_dimension": 4, "pooling_mode": "lasttoken", "include_prompt": False}
    found = facts(tmp_path, **{"1_Pooling__config": new})
    assert (found.pooling, found.pools_prompt) == (("lasttoken",), False)
    assert facts(tmp_path, **{"1_Pooling__config": {"pooling_mode": ["cls", "max"]}}).pooling == ("cls", "max")
    limits = {"sentence_bert_config": {"max_seq_length": 256}, "tokenizer_config": {"model_max_length": 512}}
    assert facts(tmp_path, **limits).max_tokens == 256
    assert facts(tmp_path, tokenizer_config={"model_max_length": 1e30}).max_tokens is None
    one = facts(tmp_path, config={**CONFIG, "id2label": {"0": "LABEL_0"}})
    assert (one.pad_token, one.labels, one.activation) == (3, ("LABEL_0",), "sigmoid")
    for key in ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
                {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}):  # fmt: skip
        assert facts(tmp_path, config={"num_labels": 1, **key}).activation == "identity"
    prompts = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": None}
    assert facts(tmp_path, config_sentence_transformers=prompts).prompts == prompts["prompts"]
    modules = [
        {"idx": i, "type": f"sentence_transformers.models.{name}"} for i, name in enumerate(["Pooling", "Dense"])
    ]
    assert facts(tmp_path, modules=modules).modules == ("Dense",)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config": "{"}, "config.json: is not JSON"),
        ({"config": []}, "expected a JSON object"),
        ({"config": {"pad_token_id": -1}}, "pad_token_id is -1"),
        ({"config": {"pad_token_id": True}}, "pad_token_id is True"),
        ({"config": {"vocab_size": "many"}}, "vocab_size is 'many'"),
        ({"config": {"vocab_size": 1e400}}, "vocab_size is inf"),
        ({"config": {"vocab_size": 1e30}}, r"vocab_size is 1e\+30; expected a whole number, 0 to 2147483647"),
        ({"config": {"pad_token_id": 2**63}}, "pad_token_id is 9223372036854775808"),
        ({"config": {"id2label": ["a"]}}, "id2label is"),
        ({"config": {"id2label": {"1": "a"}}}, "id2label is"),
        (
            {"config": {"sentence_transformers": {"activation_fn": "torch.nn.GELU"}}},
            "the activation is 'torch.nn.GELU'",
        ),
        ({"1_Pooling__config": {"pooling_mode": "median"}}, "the pooling is .*median"),
        ({"1_Pooling__config": {"pooling_mode": 5}}, "the pooling is"),
        ({"1_Pooling__config": {}}, "the pooling is not named"),
        ({"modules": {"type": "x"}}, "expected a JSON list"),
        ({"modules": "["}, "is not JSON"),
        ({"config_sentence_transformers": {"prompts": {"query": 5}}}, "prompts are no texts"),
        ({"config_sentence_transformers": {"prompts": ["a"]}}, "prompts are no texts"),
    ],
)
def test_files_that_say_what_cannot_be_are_refused_by_name(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        facts(tmp_path, **files)


@pytest.mark.parametrize(
    ("model", "files", "message"),
    [
        ({}, {}, "nothing says how they become a vector.*--pooling cls"),
        ({}, {"modules": [{"type": "m.Dense"}]}, "modules.json has more to do with them .Dense."),
        ({"outputs": ["logits"]}, {}, None),
        ({"outputs": ["logits"]}, {"config": {**CONFIG, "id2label": {"0": "a"}}}, "gives 4 scores, .* has 1 labels"),
        ({"outputs": ["other"]}, {}, r"gives other \[2, 4\]; expected hidden states"),
        ({"inputs": IDS, "outputs": ["sentence_embedding", "last_hidden_state"]}, {}, None),
    ],
)
def test_a_package_that_cannot_be_used_says_why(package, model, files, message):
    folder = package(lengths=(4,), model=sums_of_ids(**model), **files)
    if message is None:
        made = Encoder(EncoderPackage.open(folder))
        assert made.width == 4
        assert made.ranks == (model["outputs"] == ["logits"])
        np.testing.assert_allclose(made.run([[5, 7]])[0], [7, 14, 21, 28])
        return
    with pytest.raises(ValueError, match=message):
        Encoder(EncoderPackage.open(folder))


def test_a_folder_with_several_encoders_asks_for_a_name(package):
    package(name="a", pooling="cls")
    folder = package(name="b", pooling="cls")
    with pytest.raises(ValueError, match=r"holds several packages \(a, b\); say which with --name"):
        EncoderPackage.open(folder)
    assert [path.name for path in EncoderPackage.open(folder, "b").graphs] == ["b_4.hmm", "b_8.hmm"]
    with pytest.raises(FileNotFoundError, match="no encoder c in"):
        EncoderPackage.open(folder, "c")
    shutil.rmtree(folder / "tokenizer")
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json is missing"):
        EncoderPackage.open(folder, "b")


def test_the_compiler_copies_what_it_finds_and_nothing_that_belongs_to_another(package, tmp_path):
    folder = package(pooling="max", modules=[], sentence_bert_config={"max_seq_length": 6})
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) == [
        "model_4.hmm", "model_8.hmm", "tokenizer/1_Pooling/config.json", "tokenizer/config.json",
        "tokenizer/modules.json", "tokenizer/sentence_bert_config.json", "tokenizer/tokenizer.json",
    ]  # fmt: skip
    assert Encoder(EncoderPackage.open(folder)).longest == 6
    with pytest.raises(CompileError, match=r"is of another checkpoint, which model_\d.hmm needs"):
        package(name="other", config={**CONFIG, "vocab_size": 51})
    model = tmp_path / "alone" / "model.onnx"
    model.parent.mkdir()
    onnx.save(sums_of_ids(), model)
    options = {"model": model, "quant": "float32", "shapes": {"input_ids": (1, 4)}}
    with pytest.raises(CompileError, match=r"--pooling cls: there is no tokenizer.json and config.json beside"):
        compile_onnx(OnnxOptions(output=tmp_path / "o2", pooling="cls", **options))
    with pytest.raises(CompileError, match=r"--tokenizer .*there is no tokenizer\.json"):
        compile_onnx(OnnxOptions(output=tmp_path / "o2", tokenizer=tmp_path, **options))
    assert compile_onnx(OnnxOptions(output=tmp_path / "o3", **options)).checkpoint is None
    given = compile_onnx(OnnxOptions(output=tmp_path / "o4", tokenizer=tmp_path / "hf", **options))
    assert given.checkpoint == tmp_path / "hf"
    for lengths, message in (((0,), "expected numbers above 0"), ((4, 4), "each once")):
        with pytest.raises(CompileError, match=message):
            list(for_lengths(OnnxOptions(output=tmp_path / "o5", model=model), lengths))
    with pytest.raises(CompileError, match="--shape input_ids: its shape follows from --lengths"):
        list(for_lengths(OnnxOptions(output=tmp_path / "o5", model=model, shapes={"input_ids": (1, 8)}), (4,)))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("serve", "--speculate", "lookup"), "--speculate: .* is an encoder compiled from ONNX"),
        (("serve", "--lora", "poet"), "--lora: .* changes nothing; leave it out"),
        (("serve", "--batch", "8"), "--batch: .* changes nothing; leave it out"),
        (("serve", "--devices", "0,1"), "an encoder runs on one device; add --replicas 2"),
        (("generate", "--prompt", "hi"), "is an encoder, which writes no text; `tcim-lite serve` it"),
        (("chat",), "is an encoder, which writes no text; `tcim-lite serve` it"),
    ],
)
def test_commands_refuse_what_is_for_models_that_write(package, command, message):
    pytest.importorskip("tokenizers", reason="reads the tokenizer")
    shutil.copyfile(DEMO_CHECKPOINT / "tokenizer.json", (folder := package(pooling="cls")) / "tokenizer/tokenizer.json")
    name, *options = command
    done = warm_python.run("-m", "tcim_lite", name, str(folder), *options)
    assert done.returncode == 2
    assert re.search(message, done.stderr), done.stderr
