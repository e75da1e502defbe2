"""Networks of speech synthesis, exported by torch, against onnxruntime: codec, flow and vocoder."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch to build and export networks")
pytest.importorskip("onnxscript", reason="torch's newer exporter needs onnxscript")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

import speech_networks as networks
from model_cases import cosine
from zoo.build import float32_bounds

from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.onnx.compile import OnnxOptions, compile_onnx
from tcim_lite.runtime import Module

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
FRAMES, CHUNK = 20, 6


def seeded(make, *args):
    torch.manual_seed(4)
    return make(*args).eval()


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def codes(frames: int) -> np.ndarray:
    return np.random.default_rng(6).integers(0, networks.BINS, (1, networks.BOOKS, frames)).astype(np.int32)


def exported(module, feeds: Mapping[str, np.ndarray], outputs: Sequence[str]):
    """As the vendor's script exports: with the newer exporter, opset 18."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        inputs = tuple(torch.from_numpy(feed) for feed in feeds.values())
        names = {"input_names": list(feeds), "output_names": list(outputs)}
        return torch.onnx.export(module, inputs, opset_version=18, dynamo=True, verbose=False, **names).model_proto


class There:
    """A model in onnxruntime."""

    def __init__(self, model) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, dict(feeds)), strict=True))


def run(module: Module, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    for name, feed in feeds.items():
        module.set_input(name, feed)
    module.run(True)
    names = [module.get_output_name(at) for at in range(module.get_num_outputs())]
    return {name: module.get_output(name).numpy() for name in names}


def flow_feeds() -> dict[str, np.ndarray]:
    mask = (np.arange(40) < 33).astype(np.float32) * np.ones((2, 1, 1), np.float32)
    spectra = {name: random(2, 20, 40) for name in ("x", "mu", "cond")}
    return {
        "x": spectra["x"],
        "mask": mask,
        "mu": spectra["mu"] * 0.5,
        "t": np.array([0.3, 0.3], np.float32),
        "spks": random(2, 20),
        "cond": spectra["cond"] * 0.3,
    }


CASES = {
    "codec": (networks.Codec, lambda: {"codes": codes(FRAMES)}, "wav"),
    "flow": (networks.Flow, flow_feeds, "velocity"),
    "vocoder": (networks.Vocoder, lambda: {"speech_feat": random(1, 20, 24)}, "generated_speech"),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    make, feeds, output = CASES[request.param]
    module, feeds = seeded(make), feeds()
    model = exported(module, feeds, [output])
    return module, feeds, output, model, There(model)(feeds)[output]


def test_float32_is_within_its_bound_of_onnxruntime(case):
    module, feeds, output, model, want = case
    got = run(Module.load(onnx_bytes(model)), feeds)[output]
    (bound,) = float32_bounds(module, *feeds.values())
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= bound


@pytest.mark.parametrize(("quant", "least"), [("float16", 0.9999), ("w8a8h1_sefp", 0.97)])
def test_other_profiles_are_close(case, quant, least):
    _, feeds, output, model, want = case
    assert cosine(run(Module.load(onnx_bytes(model, quant)), feeds)[output], want) > least


@pytest.fixture(scope="module")
def streamed():
    codec = seeded(networks.Codec)
    module = networks.StreamedCodec(codec, CHUNK)
    states = module.states()
    names = ["pre_conv_history", "latent_buffer", "conv_history"]
    names += [f"past_{kind}_{i}" for kind in ("key", "value") for i in range(networks.LAYERS)]
    feeds = {"audio_codes": codes(CHUNK).transpose(0, 2, 1).copy()}
    feeds |= {name: np.zeros(shape, np.float32) for name, shape in zip(names[:3], states, strict=False)}
    feeds |= {"is_last": np.zeros(1, np.float32), "kv_valid_len": np.zeros(1, np.int32)}
    feeds |= {"valid_frames": np.array([CHUNK], np.int32)}
    feeds |= {name: np.zeros(shape, np.float32) for name, shape in zip(names[3:], states[3:], strict=True)}
    outputs = ["final_wav", "valid_samples", *(f"next_{name.removeprefix('past_')}" for name in names)]
    return codec, exported(module, feeds, outputs), feeds, names, outputs


@pytest.mark.parametrize(("quant", "least"), [("float32", 0.9999999), ("float16", 0.9999), ("w8a8h1_sefp", 0.97)])
def test_chunks_with_states_on_the_device_are_the_chunks_of_onnxruntime(streamed, quant, least):
    """A state output of one run is bound as input of the next, so both are one buffer from the second run on."""
    _, model, feeds, names, outputs = streamed
    here, there = Module.load(onnx_bytes(model, quant)), There(model)
    assert [here.get_input_name(at) for at in range(here.get_num_inputs())] == list(feeds)
    whole, fed = codes(FRAMES).transpose(0, 2, 1), dict(feeds)
    for name in names:
        here.set_input(name, feeds[name])
    got, want, valid = [], [], 0
    for begin in range(0, FRAMES, CHUNK):
        frames = whole[:, begin : begin + CHUNK]
        count = frames.shape[1]
        host = {
            "audio_codes": np.pad(frames, ((0, 0), (0, CHUNK - count), (0, 0))),
            "is_last": np.array([begin + CHUNK >= FRAMES], np.float32),
            "kv_valid_len": np.array([valid], np.int32),
            "valid_frames": np.array([count], np.int32),
        }
        fed |= host
        theirs, ours = there(fed), run(here, host)
        assert int(ours["valid_samples"].item()) == int(theirs["valid_samples"].item())
        skipped = networks.AHEAD * networks.SAMPLES if valid == 0 else 0
        for kept, result in ((got, ours), (want, theirs)):
            kept.append(result["final_wav"][0, skipped:][: int(theirs["valid_samples"].item())])
        fed |= {name: theirs[output] for name, output in zip(names, outputs[2:], strict=True)}
        for name, output in zip(names, outputs[2:], strict=True):
            here.set_dev_input(name, here.get_dev_output(output))
        valid = min(networks.WINDOW, valid + count)
    assert sum(map(len, want)) == FRAMES * networks.SAMPLES
    assert cosine(np.concatenate(got), np.concatenate(want)) > least


def test_a_vocoder_in_two_parts_is_the_whole(tmp_path):
    """As CosyVoice3's: the host computes the spectrum between the parts, from the source that the first one returns."""
    import onnx

    module, feeds = seeded(networks.Vocoder), {"speech_feat": random(1, 20, 24)}
    model = exported(module, feeds, ["generated_speech"])
    padded = next(node for node in model.graph.node if node.op_type == "Pad")  # the source, before its spectrum
    source = padded.input[0]
    (spectrum,) = (node.output[0] for node in model.graph.node if padded.output[0] in node.input)
    path = tmp_path / "hift.onnx"
    onnx.save(model, path)
    parts = {}
    for name, cut in (("part1", {"ends": (source,)}), ("part2", {"begins": (spectrum,)})):
        options = OnnxOptions(model=path, output=tmp_path, name=name, quant="float32", **cut)
        parts[name] = Module.load(str(compile_onnx(options).path))
    (wave,) = run(parts["part1"], feeds).values()
    around = np.pad(wave, ((0, 0), (0, 0), (8, 8)), mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(around[0, 0], 16)[::4]
    spectra = (module.forth.numpy() @ frames.T)[None]
    inputs = [parts["part2"].get_input_name(at) for at in range(parts["part2"].get_num_inputs())]
    assert set(inputs) == {spectrum, "speech_feat"}
    parts["part2"].set_input("speech_feat", parts["part1"].get_dev_input("speech_feat"))
    got = run(parts["part2"], {spectrum: spectra})["generated_speech"]
    (bound,) = float32_bounds(module, feeds["speech_feat"])
    assert np.abs(got - There(model)(feeds)["generated_speech"]).max() <= bound
