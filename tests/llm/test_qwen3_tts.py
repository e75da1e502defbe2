"""Qwen3-TTS: talker, code predictor and text projection against models of transformers with the same weights."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
pytest.importorskip("transformers.models.qwen3_omni_moe", reason="the oracle has no code predictor")
from oracle import assert_close, logit_bound
from qwen3_tts_checkpoint import GROUPS, PREDICTOR, TALKER, TEXT_TOKENS, TEXT_WIDTH, Oracle

NAME = "qwen3-tts-0.6b-customvoice"
CHUNK, ROWS = 16, 64


def compiled(checkpoint: Path, output: Path, **options) -> Path:
    options = {"name": NAME, "prefill_length": CHUNK, "context_length": ROWS, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no tokenizer
        compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=output, **options))
    return output


@pytest.fixture(scope="module", params=[128, 192], ids=["0.6B: equal rows", "1.7B: longer rows"])
def oracle(request):
    return Oracle(request.param)


@pytest.fixture(scope="module")
def folder(oracle, tmp_path_factory):
    return oracle.save(tmp_path_factory.mktemp("tts"))


class Part:
    """A prefill and a decode graph with shared caches, as the vendor's host calls them."""

    def __init__(self, folder: Path, part: str) -> None:
        manager = rt.WeightManager(rt.DevManager([0], "Xh2HalBackend"))
        self.prefill_module = rt.load(folder / f"{NAME}_{part}_prefill.hmm", option=rt.Option(manager))
        caches = [name for name in names(self.prefill_module) if "model_layers" in name]
        option = rt.Option(manager)
        option.set_dummy_tensors(caches)
        self.decode_module = rt.load(folder / f"{NAME}_{part}_decode.hmm", option=option)
        for name in caches:
            self.decode_module.set_input(name, self.prefill_module.get_dev_input(name))
        self.decode_module.set_input("current_length", np.array([1], np.int32))

    def clear(self) -> None:
        """As the host does: everything behind the lengths is set to zeros."""
        for name in names(self.prefill_module)[3:]:
            info = self.prefill_module.get_input_info(name)
            self.prefill_module.set_input(name, np.zeros(info.shape, info.dtype))

    def prefill(self, rows: np.ndarray, valid: int = 0, number: int | None = None) -> list[np.ndarray]:
        module = self.prefill_module
        padded = np.zeros(module.get_input_info("input_1").shape, np.float32)
        padded[:, : rows.shape[1]] = rows
        module.set_input("current_length", np.array([rows.shape[1]], np.int32))
        return run(module, padded, valid, number)

    def decode(self, row: np.ndarray, valid: int, number: int | None = None) -> list[np.ndarray]:
        return run(self.decode_module, row, valid, number)


def names(module: rt.Module) -> list[str]:
    return [module.get_input_name(index) for index in range(module.get_num_inputs())]


def run(module: rt.Module, rows: np.ndarray, valid: int, number: int | None) -> list[np.ndarray]:
    module.set_input("input_1", rows)
    module.set_input("valid_length", np.array([valid], np.int32))
    if number is not None:
        module.set_input(names(module)[-1], np.array([number], np.int32))
    module.run(True)
    return [module.get_output(module.get_output_name(at)).numpy() for at in range(module.get_num_outputs())]


def test_graphs_files_and_embeddings_are_the_vendors(oracle, folder, tmp_path, capsys):
    """Positions and names as its Python and C++ programs use them, files as its build names them."""
    output = compiled(folder, tmp_path, quant="w8a8h1_sefp")
    parts = ("talker", "code_predictor")
    graphs = {f"{NAME}_{part}_{stage}.hmm" for part in parts for stage in ("prefill", "decode")}
    assert {path.name for path in output.glob("*.hmm")} == graphs | {f"{NAME}_text_projection.hmm"}
    for part, sizes, tokens, rows, extra in (
        ("talker", TALKER, CHUNK, ROWS, []),
        ("code_predictor", PREDICTOR, 2, GROUPS + 2, ["generate_steps"]),
    ):
        layers = range(sizes["num_hidden_layers"])
        caches = [f"model_layers_{i}_self_attn_{kind}cache_input" for kind in "kv" for i in layers]
        for stage, length in (("prefill", tokens), ("decode", 1)):
            module = rt.load(output / f"{NAME}_{part}_{stage}.hmm")
            assert names(module) == ["input_1", "valid_length", "current_length", *caches, *extra]
            assert tuple(module.get_input_info("input_1").shape) == (1, length, oracle.width)
            assert tuple(module.get_input_info(caches[0]).shape) == (1, sizes["num_key_value_heads"], rows, 64)
            found = [module.get_output_name(at) for at in range(module.get_num_outputs())]
            assert found == (["logits", "past_hidden"] if part == "talker" else ["logits"])
            assert tuple(module.get_output_info("logits").shape) == (1, 1, sizes["vocab_size"])
    assert tuple(module.get_input_info("generate_steps").shape) == (1,)
    dump = ["dump", str(output), "--name", f"{NAME}_code_predictor", "-o", str(tmp_path / "dump")]
    assert main(dump) == 2
    assert "graphs that take generate_steps are dumped of recorded calls alone" in capsys.readouterr().err

    hmquant = output / "hmquant"
    codes = torch.load(hmquant / "quant_embedding_code_predictor.pt")
    assert list(codes) == [f"{index}.weight" for index in range(GROUPS - 1)]
    modules = torch.nn.ModuleList(torch.nn.Embedding(67, oracle.width) for _ in codes)
    modules.load_state_dict(codes)
    for name, table in {
        "quant_embedding": oracle.talker.model.embed_tokens.weight,
        "text_embedding": oracle.text.weight,
        "quant_embedding_code_predictor": torch.stack([module.weight for module in oracle.codes]),
    }.items():
        want = table.detach().half().numpy()
        assert np.array_equal(np.fromfile(hmquant / f"{name}.bin", np.float16), want.ravel()), name
        if name != "quant_embedding_code_predictor":
            assert np.array_equal(torch.load(hmquant / f"{name}.pt")["weight"].numpy(), want), name
    assert all(np.array_equal(codes[f"{i}.weight"].numpy(), want[i]) for i in range(GROUPS - 1))


# The bound of docs/numerics.md for float32; the others are those of the encoder of Qwen3-ASR.
QUANTS = [("float32", None), ("float16", 5e-3), ("w8a8h1_sefp", 0.1), ("w4a8h0_ssfp", 0.5)]


@pytest.mark.parametrize(("quant", "limit"), QUANTS)
def test_the_talker_is_a_qwen3_that_also_returns_its_hidden_state(oracle, folder, tmp_path, quant, limit):
    part = Part(compiled(folder, tmp_path, quant=quant), "talker")
    limit = limit or logit_bound(oracle.talker.config)
    rows = torch.randn(1, 40, oracle.width, generator=torch.Generator().manual_seed(1)).half().float() * 0.2
    with torch.no_grad():
        out = oracle.talker(inputs_embeds=rows, output_hidden_states=True)
    want = [out.logits[0].numpy(), out.hidden_states[-1][0].numpy()]
    part.clear()
    rows = rows.numpy()
    results = {
        15: part.prefill(rows[:, :16]),
        31: part.prefill(rows[:, 16:32], 16),
        34: part.prefill(rows[:, 32:35], 32),
    }
    results |= {at: part.decode(rows[:, at : at + 1], at) for at in range(35, 40)}
    for at, got in results.items():
        assert [each.shape for each in got] == [(1, 1, 131), (1, 1, oracle.width)]
        for what, each, whole in zip(("logits", "past_hidden"), got, want, strict=True):
            assert_close(each[0, 0], whole[at], limit, f"{what} of row {at}")


@pytest.mark.parametrize(("quant", "limit"), QUANTS)
def test_the_code_predictor_has_a_head_for_each_code(oracle, folder, tmp_path, quant, limit):
    part = Part(compiled(folder, tmp_path, quant=quant), "code_predictor")
    limit = limit or logit_bound(oracle.predictor.config)
    generator = torch.Generator().manual_seed(2)
    for _ in range(2):  # the second frame begins where the first one began
        frame = torch.randn(1, GROUPS, oracle.width, generator=generator).half().float() * 0.2
        with torch.no_grad():
            hidden = oracle.predictor.model(inputs_embeds=oracle.entry(frame)).last_hidden_state
            want = [head(hidden[0, 1 + step]).numpy() for step, head in enumerate(oracle.predictor.lm_head)]
        part.clear()
        got = [part.prefill(frame[:, :2].numpy(), 0, 0)[0]]
        got += [part.decode(frame[:, 1 + step : 2 + step].numpy(), 1 + step, step)[0] for step in range(1, GROUPS - 1)]
        for step, (each, whole) in enumerate(zip(got, want, strict=True)):
            assert_close(each[0, 0], whole, limit, f"head {step}")


@pytest.mark.parametrize("number", [-1, GROUPS - 1, 1 << 20])
def test_a_head_that_is_not_there_is_an_error(folder, tmp_path, number):
    part = Part(compiled(folder, tmp_path, quant="float16"), "code_predictor")
    part.decode(np.zeros((1, 1, part.decode_module.get_input_info("input_1").shape[2])), 0, GROUPS - 2)
    with pytest.raises(RuntimeError, match=rf"'generate_steps' is {number}, expected 0 to {GROUPS - 2}, the heads"):
        part.decode(np.zeros((1, 1, part.decode_module.get_input_info("input_1").shape[2])), 0, number)


@pytest.mark.parametrize(("quant", "limit"), [("float32", 2e-5), ("float16", 5e-3), ("w8a8h1_sefp", 0.1)])
def test_text_is_projected_token_by_token(oracle, folder, tmp_path, quant, limit):
    module = rt.load(compiled(folder, tmp_path, quant=quant) / f"{NAME}_text_projection.hmm")
    assert tuple(module.get_input_info("inputs_embeds").shape) == (1, 1, TEXT_WIDTH)
    with torch.no_grad():
        rows = oracle.text(torch.arange(TEXT_TOKENS)).half().float()
        want = oracle.projection(rows).numpy()
    for token in (0, 50, TEXT_TOKENS - 1):
        module.set_input("inputs_embeds", rows[token].detach().numpy())
        module.run(True)
        assert_close(module.get_output("outputs").numpy()[0, 0], want[token], limit, f"token {token}")


def test_a_self_contained_package_takes_the_place_of_one_with_files_of_weights(folder, tmp_path):
    compiled(folder, tmp_path, quant="float16")
    assert len(list(tmp_path.glob("*.hmw"))) == 3
    compiled(folder, tmp_path, quant="float16", self_contained=True)
    assert not list(tmp_path.glob("*.hmw"))
    Part(tmp_path, "talker").prefill(
        np.zeros((1, 3, rt.load(tmp_path / f"{NAME}_talker_decode.hmm").get_input_info("input_1").shape[2]))
    )


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"num_code_groups": 6}, {}, "num_code_groups is 6 in talker_config and 5 in its code_predictor_config"),
        ({"use_sliding_window": True}, {}, "use_sliding_window=True is not supported; the talker of Qwen3-TTS"),
        ({"code_predictor_config": 5}, {}, "code_predictor_config must be an object, got 5"),
        ({"num_hidden_layers": 4}, {}, "talker.model.layers.3"),
        ({"text_vocab_size": 96}, {}, r"talker.model.text_embedding.weight.*\[97, 192\]"),
        ({}, {"batch": 2}, "--batch: the graphs of Qwen3-TTS are those of the vendor"),
        ({}, {"prefill_length": 65}, "--prefill-length 65 is greater than --context-length 64"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, changes, options, message):
    checkpoint = Oracle(128).save(tmp_path / "in", **changes)
    with pytest.raises(CompileError, match=message):
        compiled(checkpoint, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_tensors_without_a_place_are_named(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    config["talker_config"]["num_hidden_layers"] = 2
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "model.safetensors").symlink_to(folder / "model.safetensors")
    unused = "tensors that config.json does not ask for, such as 'talker.model.layers.2"
    with pytest.warns(match="no tokenizer"), pytest.warns(match=unused):
        compile_checkpoint(
            CompileOptions(checkpoint=copy, output=tmp_path / "out", prefill_length=8, context_length=64)
        )
    assert (tmp_path / "out/qwen3_tts_talker_prefill.hmm").is_file()
