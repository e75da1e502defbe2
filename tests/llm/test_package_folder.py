"""A package's folder as other tools take it, and what its generation_config.json decides."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from llm_packages import DEMO_CHECKPOINT, LoadedPackage, compile_package

from tcim_lite.llm import GenerationDefaults, Package, Sampler, encode_chat, load_tokenizer
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.onnx import OnnxOptions, compile_onnx

MESSAGES = [{"role": "user", "content": "What is 12 + 30?"}]
THINKING = (
    "{% if enable_thinking is defined and not enable_thinking %}no {% endif %}{{ messages[0].content }}{{ mood }}"
)


@pytest.fixture
def defaults_of(tmp_path):
    def make(generation: object = None, config: object = None) -> GenerationDefaults:
        for name, content in (("generation_config.json", generation), ("config.json", config)):
            if content is not None:
                (tmp_path / name).write_text(json.dumps(content))
        return GenerationDefaults.read(tmp_path)

    return make


def test_a_folder_of_an_earlier_version_has_its_tokenizer_elsewhere(demo_package, tmp_path):
    folder = shutil.copytree(demo_package("w4a8h0_ssfp").folder, tmp_path / "copy")
    for path in folder.glob("*.json*"):
        path.unlink()
    (folder / "chat_template.jinja").unlink()
    assert load_tokenizer(Package.open(folder).tokenizer_folder).eos_token_id is not None


@pytest.mark.oracle
@pytest.mark.parametrize("way", ["as compiled", "copied"])
def test_transformers_takes_the_folder(demo_package, tmp_path, way):
    transformers = pytest.importorskip("transformers", reason="it is what reads the folder")
    folder = demo_package("w4a8h0_ssfp").folder
    if way == "copied":
        folder = shutil.copytree(folder, tmp_path / "copy")
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    config = transformers.AutoConfig.from_pretrained(str(folder))
    assert (config.model_type, config.vocab_size) == ("qwen3", config.vocab_size)
    ours = encode_chat(load_tokenizer(Package.open(folder).tokenizer_folder), MESSAGES)
    assert encode_chat(transformers.AutoTokenizer.from_pretrained(str(folder)), MESSAGES) == ours
    assert transformers.GenerationConfig.from_pretrained(str(folder)).eos_token_id is not None


def test_a_folder_of_something_else_is_not_written_over(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CompileError, match=r"config\.json is not of a package"):
        compile_checkpoint(CompileOptions(checkpoint=DEMO_CHECKPOINT, output=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_the_checkpoints_own_folder_may_be_the_package_and_be_compiled_again(tmp_path):
    folder = shutil.copytree(DEMO_CHECKPOINT, tmp_path / "checkpoint")
    for prefill_length in (256, 128):
        compile_package(folder, folder, prefill_length=prefill_length)
    assert (folder / "config.json").read_bytes() == (DEMO_CHECKPOINT / "config.json").read_bytes()


def test_a_package_keeps_its_embedding_beside_another(tmp_path):
    def compiled(name, quant="w4a8h0_ssfp"):
        compile_checkpoint(CompileOptions(checkpoint=DEMO_CHECKPOINT, output=tmp_path, name=name, quant=quant))
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    compiled("a")
    compiled("b")
    before = compiled("a")  # of one checkpoint, so the embedding is the same
    with pytest.raises(CompileError, match=r"holds another package, with b_prefill\.hmm, whose embedding, hmquant/"):
        compiled("a", "float32")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    for path in tmp_path.glob("b*"):
        path.unlink()
    assert compiled("a", "float32") != before


def test_a_network_does_not_replace_a_graph_of_a_package(demo_package, tmp_path):
    helper = pytest.importorskip("onnx.helper", reason="writes the network")
    out, path = shutil.copytree(demo_package("w4a8h0_ssfp").folder, tmp_path / "out"), tmp_path / "net.onnx"
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    ports = [[helper.make_tensor_value_info(name, 1, (1, 2))] for name in ("model_type", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["model_type"], ["y"])], "net", *ports)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    name = Package.open(out).name
    for stage in ("prefill", "decode"):
        message = f"{name}_{stage}.hmm is a graph of a package compiled from a checkpoint of qwen3, .* another --name"
        with pytest.raises(CompileError, match=message):
            compile_onnx(OnnxOptions(model=path, output=out, name=f"{name}_{stage}"))
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before
    (out / "broken.hmm").write_bytes(b"no model")
    for network in ("broken", f"{name}_visual", f"{name}_visual", "a_prefill"):  # its vision network, also again
        assert compile_onnx(OnnxOptions(model=path, output=out, name=network)).path.stat().st_size > 100
    compile_package(DEMO_CHECKPOINT, out, name=name, quant="float32")  # has another embedding, for no other package


def test_files_that_no_longer_fit_go_from_the_root_as_well(tmp_path):
    checkpoint = shutil.copytree(DEMO_CHECKPOINT, tmp_path / "checkpoint")
    compile_package(checkpoint, tmp_path / "out")
    (checkpoint / "generation_config.json").unlink()
    compile_package(checkpoint, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("generation_config.json"))
    assert (tmp_path / "out" / "config.json").is_file()


@pytest.mark.parametrize("name", ["preprocessor_config.json", "video_preprocessor_config.json"])
def test_the_processors_of_images_and_videos_are_copied(tmp_path, name):
    """Programs for images read them from the folder of the tokenizer."""
    checkpoint = shutil.copytree(DEMO_CHECKPOINT, tmp_path / "checkpoint")
    (checkpoint / name).write_text('{"patch_size": 16}')
    package = compile_package(checkpoint, tmp_path / "out")
    for folder in (package.folder, package.tokenizer_folder):
        assert (folder / name).read_text() == '{"patch_size": 16}'


def test_end_tokens_are_one_or_several(defaults_of):
    assert defaults_of().stop_tokens == frozenset()
    assert defaults_of(config={"eos_token_id": 7}).stop_tokens == {7}
    assert defaults_of({"eos_token_id": [3, 9]}).stop_tokens == {3, 9}
    assert defaults_of({"eos_token_id": 5}).stop_tokens == {5}
    assert defaults_of({"eos_token_id": None}).stop_tokens == {7}


def test_sampling_follows_the_file_only_where_it_asks_for_sampling(defaults_of):
    values = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.5}
    greedy = defaults_of({"do_sample": False, **values}).sampler()
    assert (greedy.temperature, greedy.repetition_penalty) == (0, 1.5)
    sampler = defaults_of({"do_sample": True, **values}).sampler()
    assert {name: getattr(sampler, name) for name in values} == values
    assert defaults_of({"do_sample": True, **values}).sampler(top_k=3).top_k == 3
    bare = defaults_of({"do_sample": True}).sampler()
    assert (bare.temperature, bare.top_k, bare.top_p, bare.min_p, bare.repetition_penalty) == (1, 50, 1, 0, 1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"top_p": "high"}, "top_p is 'high', expected a number above 0"),
        ({"do_sample": 1}, "do_sample is 1, expected true or false"),
        ({"temperature": -1}, "temperature is -1, expected"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0"),
        ({"eos_token_id": ["</s>"]}, "eos_token_id is"),
        ({"eos_token_id": True}, "eos_token_id is True"),
        ([], "expected a JSON object, found a list"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_name(defaults_of, content, words):
    with pytest.raises(ValueError, match=r"generation_config\.json: " + words):
        defaults_of(content)


def test_a_generator_does_as_the_package_says(tiny_package, tmp_path):
    folder = tmp_path / "package"
    shutil.copytree(tiny_package(prefill_length=16, context_length=64).folder, folder)
    package = Package.open(folder)
    plain = list(LoadedPackage(package).generate([5, 9], max_new_tokens=8))
    write = {"eos_token_id": [330, plain[3]], "do_sample": False}
    (package.tokenizer_folder / "generation_config.json").write_text(json.dumps(write))
    model = LoadedPackage(package)
    model.defaults = package.generation_defaults
    assert list(model.generate([5, 9], max_new_tokens=8)) == plain[: plain.index(plain[3])]
    assert model.stats.stopped_by == "eos"
    assert list(model.generate([5, 9], max_new_tokens=8, stop_tokens=())) == plain  # the caller says otherwise
    (package.tokenizer_folder / "generation_config.json").write_text('{"do_sample": true, "temperature": 1e5}')
    model.defaults = package.generation_defaults
    assert len({tuple(model.generate([5, 9], max_new_tokens=8)) for _ in range(4)}) > 1
    assert list(model.generate([5, 9], Sampler(), 8)) == plain
    penalty = {"repetition_penalty": 1e5}
    (package.tokenizer_folder / "generation_config.json").write_text(json.dumps(penalty))
    model.defaults = package.generation_defaults
    distinct = [5, 9, *model.generate([5, 9], max_new_tokens=30)]
    assert len(set(distinct)) == len(distinct)


class TestSamplerAgainstTransformers:
    logits = np.random.default_rng(3).normal(0, 3, 200).astype(np.float16)

    @pytest.mark.oracle
    @pytest.mark.parametrize(
        "values",
        [
            {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
            {"temperature": 1.3, "min_p": 0.05},
            {"temperature": 0.9, "top_k": 40, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.3},
        ],
    )
    def test_probabilities(self, values):
        torch = pytest.importorskip("torch", reason="transformers' processors need it")
        processors = pytest.importorskip("transformers.generation.logits_process")
        text = [1, 5, 5, int(self.logits.argmax())]
        steps = {
            "repetition_penalty": processors.RepetitionPenaltyLogitsProcessor,
            "temperature": processors.TemperatureLogitsWarper,
            "top_k": processors.TopKLogitsWarper,
            "top_p": processors.TopPLogitsWarper,
            "min_p": processors.MinPLogitsWarper,
        }
        scores = torch.tensor(self.logits.astype(np.float32))[None]
        for name, step in steps.items():
            if name in values:
                scores = step(values[name])(torch.tensor([text]), scores)
        expected = torch.softmax(scores.double(), -1)[0].numpy()
        np.testing.assert_allclose(Sampler(**values).probabilities(self.logits, text), expected, atol=1e-6)

    @pytest.mark.parametrize(("option", "value"), [("min_p", -0.1), ("min_p", 2), ("repetition_penalty", 0)])
    def test_values_out_of_range_are_refused(self, option, value):
        with pytest.raises(ValueError, match=option):
            Sampler(**{option: value})


@pytest.fixture
def tokenizer_with(tmp_path):
    def make(template: str | None):
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(DEMO_CHECKPOINT / name, tmp_path / name)
        path = Path(tmp_path / "chat_template.jinja")
        path.unlink(missing_ok=True)
        if template is not None:
            path.write_text(template)
        return load_tokenizer(tmp_path)

    return make


def test_template_arguments_reach_the_template(tokenizer_with):
    tokenizer = tokenizer_with(THINKING)
    texts = [
        tokenizer.decode(encode_chat(tokenizer, MESSAGES, **arguments))
        for arguments in ({}, {"enable_thinking": True}, {"enable_thinking": False}, {"mood": "!", "unknown": 1})
    ]
    question = MESSAGES[0]["content"]
    assert texts == [question, question, f"no {question}", f"{question}!"]
    with pytest.raises(TypeError, match="tokenize cannot be chosen"):
        encode_chat(tokenizer, MESSAGES, tokenize=False)


def test_a_prompt_needs_no_template(tokenizer_with):
    bare, text = tokenizer_with(None), MESSAGES[0]["content"]
    plain = bare(text)["input_ids"]
    assert encode_chat(bare, MESSAGES) == encode_chat(bare, MESSAGES, raw=True) == plain
    with pytest.raises(ValueError, match=r"there is no chat template; .*raw=True"):
        encode_chat(bare, MESSAGES, raw=False)
    assert encode_chat(bare, MESSAGES, chat_template="{{ messages[0].content }}?") == bare(f"{text}?")["input_ids"]
    broken = tokenizer_with("{{ 1 / 0 }}")
    assert encode_chat(broken, MESSAGES, raw=True) == plain
    with pytest.raises(ValueError, match=r"the tokenizer fails: .*TypeError"):
        encode_chat(broken, [{"role": "user", "content": None}], raw=True)
