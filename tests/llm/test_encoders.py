"""Encoders without a server: what the files of a checkpoint say, pooling, and packages that cannot be used."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
import warm_python
from llm_packages import DEMO_CHECKPOINT

from tcim_lite.llm.encoders import Encoder, EncoderEngine, EncoderFacts, EncoderPackage, EncoderPrompt, pooled
from tcim_lite.llm.engine import Driver, QueueFullError, RequestError, SamplingParams
from tcim_lite.models.common.errors import CompileError

onnx = pytest.importorskip("onnx", reason="compiles ONNX")

from tcim_lite.models.onnx import OnnxOptions, compile_onnx, for_lengths

CONFIG = {"model_type": "bert", "vocab_size": 50, "pad_token_id": 3}
IDS = ("input_ids", "attention_mask", "token_type_ids")


def write(folder, **files) -> None:
    """Files of JSON; "__" stands for "/"."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def sums_of_ids(inputs=IDS[:2], outputs=None, size=4):
    """A network whose hidden states are each id times its mask, 1 to `size` times; no other row has a part in them."""
    from onnx import TensorProto, helper, numpy_helper

    scale = numpy_helper.from_array(np.arange(1, size + 1, dtype=np.float32).reshape(1, 1, size), "scale")
    axes = numpy_helper.from_array(np.array([2], np.int64), "axes")
    nodes = [helper.make_node("Mul", list(IDS[:2]), ["masked"])]
    if "token_type_ids" in inputs:
        nodes += [helper.make_node("Add", ["masked", "token_type_ids"], ["sum"])]
    nodes += [
        helper.make_node("Cast", [nodes[-1].output[0]], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["float", "axes"], ["rows"]),
        helper.make_node("Mul", ["rows", "scale"], ["hidden"]),
        helper.make_node("ReduceMax", ["hidden"], ["flat"], axes=[1], keepdims=0),
        helper.make_node("Identity", ["hidden"], ["last_hidden_state"]),
        *(helper.make_node("Identity", ["flat"], [name]) for name in ("logits", "sentence_embedding", "other")),
        helper.make_node("Identity", ["hidden"], ["wide_logits"]),
    ]
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in inputs]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs or ["last_hidden_state"]]
    graph = helper.make_graph(nodes, "sums", given, made, [scale, axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    return model


@pytest.fixture
def package(tmp_path):
    """Compiles a network beside its checkpoint."""

    def make(lengths=(4, 8), batch=2, name=None, model=None, pooling=None, **files):
        folder, out = tmp_path / "hf", tmp_path / "out"
        write(folder, **{"tokenizer": {}, "config": CONFIG, **files})
        onnx.save(sums_of_ids() if model is None else model, folder / "model.onnx")
        options = OnnxOptions(
            model=folder / "model.onnx", output=out, name=name, quant="float32", batch=batch, pooling=pooling
        )
        for each in for_lengths(options, lengths):
            compile_onnx(each)
        return out

    return make


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
        ({"modules": "["}, "expected a JSON list"),
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


@pytest.fixture
def engine(package):
    return EncoderEngine(Encoder(EncoderPackage.open(package(pooling="cls"))), 99, max_waiting=3)


def test_an_engine_runs_texts_of_one_length_together_in_order(engine):
    prompts = [[1], [2] * 7, [3] * 2, [4]]
    for number, prompt in enumerate(prompts):
        engine.enqueue(engine.prepare(prompt, None, str(number)))
    ran = []
    while engine.has_work:
        engine.advance()
        ran.append([event.request_id for event in engine.take_events()])
    assert ran == [["0", "2"], ["1"], ["3"]]
    assert (engine.stats.prefill_chunks, engine.stats.finished["length"], engine.stats.prompt_tokens) == (3, 4, 11)


def test_what_an_engine_cannot_do_is_refused(engine):
    for prompt, params, message in (
        ([], None, "empty"),
        ([1] * 9, None, "9 tokens, the context holds 8; .*--lengths"),
        ([50], None, "outside the vocabulary of 50"),
        ([1], SamplingParams(max_tokens=5), "writes no text"),
    ):
        with pytest.raises(RequestError, match=message):
            engine.prepare(prompt, params, "a")
    for number in range(5):  # two in a batch, three that wait
        engine.enqueue(engine.prepare([1], None, str(number)))
    with pytest.raises(QueueFullError):
        engine.enqueue(engine.prepare([1], None, "6"))
    assert engine.abort("3")
    assert not engine.abort("3")
    assert [(event.request_id, event.finish_reason) for event in engine.take_events()] == [("3", "abort")]


def test_a_run_that_fails_ends_its_requests_and_no_others(engine, monkeypatch):
    run = engine.slots.encoder.run

    def fail(prompts):
        raise RuntimeError("lost")

    monkeypatch.setattr(engine.slots.encoder, "run", fail)
    for number in range(3):
        engine.enqueue(engine.prepare([7], None, str(number)))
    engine.advance()
    monkeypatch.setattr(engine.slots.encoder, "run", run)
    engine.advance()
    events = engine.take_events()
    assert [(event.request_id, event.error) for event in events] == [("0", "lost"), ("1", "lost"), ("2", None)]
    np.testing.assert_allclose(events[2].hidden, [7, 14, 21, 28])


def test_a_driver_runs_it(engine):
    import queue

    driver, found = Driver(engine), queue.Queue()
    try:
        for number in (5, 6, 7):
            driver.submit([number], SamplingParams(max_tokens=0), found.put)
        values = sorted(found.get(timeout=20).hidden[0] for _ in range(3))
        assert values == [5, 6, 7]
    finally:
        assert driver.close(timeout=20)


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
