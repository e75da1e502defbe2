"""The codec of Qwen3-TTS from a checkpoint, whole and in chunks, against PyTorch modules of the same blocks."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("onnx", reason="the codec is compiled as a network")
transformers = pytest.importorskip("transformers", reason="of the language models' checkpoint")
pytest.importorskip("transformers.models.qwen3_omni_moe", reason="of the language models' checkpoint")
sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))

import speech_networks as networks
from safetensors.torch import save_file
from zoo.build import float32_bounds

from tcim_lite.models.checkpoints.checkpoint import Checkpoint
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.speech.codec_config import read_codec
from tcim_lite.models.speech.qwen3_tts_codec import streamed_codec, whole_codec
from tcim_lite.runtime import Module

pytestmark = pytest.mark.oracle
FRAMES, CHUNK = 20, 6
CONFIG = {
    "codebook_size": networks.BINS,
    "codebook_dim": networks.WIDTH,
    "hidden_size": networks.LATENT,
    "latent_dim": networks.LATENT,
    "intermediate_size": 2 * networks.LATENT,
    "decoder_dim": networks.LATENT,
    "num_attention_heads": networks.HEADS,
    "num_key_value_heads": networks.HEADS,
    "num_hidden_layers": networks.LAYERS,
    "num_quantizers": networks.BOOKS,
    "sliding_window": networks.WINDOW,
    "upsample_rates": networks.RATES,
    "upsampling_ratios": networks.UPSAMPLE,
}
_LAYER = {
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    **{name: f"self_attn.{name}_proj" for name in "qkvo"},
    **{name: f"mlp.{name}_proj" for name in ("gate", "up", "down")},
    "scale1": "self_attn_layer_scale.scale",
    "scale2": "mlp_layer_scale.scale",
}
_CONVNEXT = {"depthwise": "dwconv.conv", "norm": "norm", "up": "pwconv1", "down": "pwconv2", "gamma": "gamma"}
_UNIT = {"act1": "act1", "act2": "act2", "conv1": "conv1.conv", "conv2": "conv2.conv"}


def tensors_of(codec: networks.Codec) -> dict[str, torch.Tensor]:
    """Under the names of the published class; what the small codec lacks changes nothing."""
    found: dict[str, torch.Tensor] = {}

    def add(prefix: str, module, renamed: dict[str, str] | None = None) -> None:
        for name, tensor in module.state_dict().items():
            first, _, rest = name.partition(".")
            name = ".".join(filter(None, (renamed[first], rest))) if renamed else name
            found[f"decoder.{prefix}.{name}"] = tensor.contiguous()

    for index, book in enumerate(codec.books):
        part = "rvq_first.vq.layers.0" if index == 0 else f"rvq_rest.vq.layers.{index - 1}"
        usage = torch.arange(1.0, networks.BINS + 1)
        found[f"decoder.quantizer.{part}._codebook.cluster_usage"] = usage
        found[f"decoder.quantizer.{part}._codebook.embedding_sum"] = book.weight.detach() * usage[:, None]
    add("quantizer.rvq_first.output_proj", codec.first)
    add("quantizer.rvq_rest.output_proj", codec.rest)
    add("pre_conv.conv", codec.pre)
    for name in ("input_proj", "output_proj"):
        found[f"decoder.pre_transformer.{name}.weight"] = torch.eye(networks.LATENT)
        found[f"decoder.pre_transformer.{name}.bias"] = torch.zeros(networks.LATENT)
    for index, layer in enumerate(codec.layers):
        add(f"pre_transformer.layers.{index}", layer, _LAYER)
    add("pre_transformer.norm", codec.norm)
    for index, (up, block) in enumerate(codec.up):
        add(f"upsample.{index}.0.conv", up)
        add(f"upsample.{index}.1", block, _CONVNEXT)
    first, *rest = codec.decoder
    add("decoder.0.conv", first)
    for index in range(len(networks.RATES)):
        snake, up, *units = rest[5 * index : 5 * index + 5]
        here = f"decoder.{index + 1}.block"
        add(f"{here}.0", snake)
        add(f"{here}.1.conv", up)
        for number, unit in enumerate(units, 2):
            add(f"{here}.{number}", unit, _UNIT)
    add(f"decoder.{len(networks.RATES) + 1}", rest[-2])
    add(f"decoder.{len(networks.RATES) + 2}.conv", rest[-1])
    return found


def save(codec: networks.Codec, folder: Path, **changes) -> Path:
    folder.mkdir(parents=True)
    config = {"model_type": "qwen3_tts_tokenizer_12hz", "decoder_config": {**CONFIG, **changes}}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors_of(codec), folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def codec():
    torch.manual_seed(4)
    return networks.Codec().eval()


@pytest.fixture(scope="module")
def config(codec, tmp_path_factory):
    folder = save(codec, tmp_path_factory.mktemp("codec") / "speech_tokenizer")
    return read_codec(json.loads((folder / "config.json").read_text()), Checkpoint(folder))


def drawn(frames: int) -> np.ndarray:
    return np.random.default_rng(6).integers(0, networks.BINS, (1, networks.BOOKS, frames)).astype(np.int32)


def test_whole_sounds_are_those_of_the_modules(codec, config):
    module, codes = Module.load(onnx_bytes(whole_codec(config, FRAMES))), drawn(FRAMES)
    module.set_input("codes", codes)
    module.run(True)
    with torch.no_grad():
        want = codec(torch.from_numpy(codes)).numpy()
    (bound,) = float32_bounds(codec, codes)
    assert want.shape == (1, 1, FRAMES * networks.SAMPLES)
    assert np.abs(module.get_output("wav").numpy() - want).max() <= bound


def test_chunks_and_their_states_are_those_of_the_modules(codec, config):
    """Also where the window is full, and where a last chunk is short."""
    streamed = networks.StreamedCodec(codec, CHUNK)
    module, codes = Module.load(onnx_bytes(streamed_codec(config, CHUNK))), drawn(4 * CHUNK + 2)
    names = [module.get_input_name(at) for at in range(module.get_num_inputs())]
    outputs = [module.get_output_name(at) for at in range(module.get_num_outputs())]
    at = [name for name in names if name.startswith(("pre_", "latent", "conv", "past"))]
    states, valid = {n: np.zeros(s, np.float32) for n, s in zip(at, streamed.states(), strict=True)}, 0
    for begin in range(0, codes.shape[2], CHUNK):
        part = codes[:, :, begin : begin + CHUNK].transpose(0, 2, 1)
        count = part.shape[1]
        feeds = {
            "audio_codes": np.pad(part, ((0, 0), (0, CHUNK - count), (0, 0))),
            "is_last": np.array([count < CHUNK], np.float32),
            "kv_valid_len": np.array([valid], np.int32),
            "valid_frames": np.array([count], np.int32),
            **states,
        }
        feeds = {name: feeds[name] for name in names}
        for name, feed in feeds.items():
            module.set_input(name, feed)
        module.run(True)
        with torch.no_grad():
            want = streamed(*(torch.from_numpy(feed) for feed in feeds.values()))
        bounds = float32_bounds(streamed, *feeds.values())
        for output, wanted, bound in zip(outputs, want, bounds, strict=True):
            got = module.get_output(output).numpy()
            assert got.shape == tuple(wanted.shape)
            assert np.abs(got - wanted.numpy()).max() <= bound, (output, begin)
        states = {name: array.numpy() for name, array in zip(at, want[2:], strict=True)}
        valid = min(networks.WINDOW, valid + count)


def test_states_may_stay_on_the_device(config):
    """As in the vendor's program in C++: the outputs of a step are the inputs of the next, also of a second sound."""
    codes = drawn(3 * CHUNK).transpose(0, 2, 1)
    module = Module.load(onnx_bytes(streamed_codec(config, CHUNK)))
    names = [module.get_input_name(at) for at in range(module.get_num_inputs())]
    outputs = [module.get_output_name(at) for at in range(module.get_num_outputs())]
    states = [*names[1:4], *names[7:]]

    def zeros(name: str) -> np.ndarray:
        info = module.get_input_info(name)
        return np.zeros(info.shape, info.dtype)

    def sound(on_device: bool) -> np.ndarray:
        found, heard = {}, []
        for name in states:
            module.set_input(name, zeros(name))
            found[name] = module.get_dev_input(name) if on_device else zeros(name)
        for begin in range(0, codes.shape[1], CHUNK):
            valid = min(networks.WINDOW, begin)
            module.set_input(names[0], codes[:, begin : begin + CHUNK])
            for name, number in zip(names[4:7], (begin + CHUNK == codes.shape[1], valid, CHUNK), strict=True):
                module.set_input(name, np.array([number], module.get_input_info(name).dtype))
            for name, state in found.items():
                (module.set_dev_input if on_device else module.set_input)(name, state)
            module.run(True)
            heard.append(module.get_output(outputs[0]).numpy().copy())
            for name, output in zip(states, outputs[2:], strict=True):
                found[name] = module.get_dev_output(output) if on_device else module.get_output(output).numpy().copy()
        return np.concatenate(heard, -1)

    want = sound(on_device=False)
    for _ in range(2):
        assert np.array_equal(sound(on_device=True), want)


def test_a_package_of_a_whole_checkpoint_has_the_codec(codec, tmp_path):
    from qwen3_tts_checkpoint import Oracle

    checkpoint = Oracle(128).save(tmp_path / "in")
    save(codec, checkpoint / "speech_tokenizer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no tokenizer
        compile_checkpoint(
            CompileOptions(checkpoint=checkpoint, output=tmp_path / "out", name="tts", context_length=256)
        )
    whole, streamed = (
        Module.load(str(tmp_path / f"out/tts_{n}.hmm")) for n in ("speech_tokenizer", "stateful_decoder")
    )
    assert tuple(whole.get_input_info("codes").shape) == (1, networks.BOOKS, 300)
    assert whole.get_output_info("wav").dtype == np.float16
    assert tuple(streamed.get_input_info("audio_codes").shape) == (1, 12, networks.BOOKS)
    lengths = json.loads((tmp_path / "out/hmquant/decode_padding_shapes.json").read_text())
    assert len(lengths) == 300
    assert lengths["1_4_7"] == [1, 1, 7 * networks.SAMPLES]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 1}, "num_key_value_heads=1 is not supported"),
        ({"upsample_rates": [4, 0]}, r"upsample_rates=\[4, 0\] is not supported"),
        ({"decoder_dim": 66}, "decoder_dim=66 is not supported"),
        ({"num_hidden_layers": 3}, "decoder.pre_transformer.layers.2"),
        ({"codebook_size": 31}, r"cluster_usage.*\[32\].*\[31\]|cluster_usage.*\[31\].*\[32\]"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ({"codebook_dim": "wide"}, "codebook_dim must be a positive integer"),
    ],
)
def test_codecs_that_do_not_fit_are_refused(codec, tmp_path, changes, message):
    folder = save(codec, tmp_path / "speech_tokenizer", **changes)
    with pytest.raises(CompileError, match=message):
        read_codec(json.loads((folder / "config.json").read_text()), Checkpoint(folder))


def test_a_codec_of_another_kind_is_left_out(codec, tmp_path):
    """And so is one that an earlier compilation wrote: its sounds would be those of other weights."""
    from qwen3_tts_checkpoint import Oracle

    checkpoint = Oracle(128).save(tmp_path / "in")
    folder = save(codec, checkpoint / "speech_tokenizer")
    options = CompileOptions(checkpoint=checkpoint, output=tmp_path / "out", context_length=256)
    with pytest.warns(match="no tokenizer"):
        compile_checkpoint(options)
    mine = tmp_path / "out" / "qwen3_tts_other_encoder.hmm"
    mine.write_text("mine")
    (folder / "config.json").write_text('{"model_type": "qwen3_tts_tokenizer_25hz"}')
    with pytest.warns(match="no tokenizer"), pytest.warns(match="model_type='qwen3_tts_tokenizer_25hz', expected"):
        compile_checkpoint(options)
    graphs = {path.name for path in (tmp_path / "out").glob("*.hmm")}
    assert mine.name in graphs
    assert not graphs & {"qwen3_tts_speech_tokenizer.hmm", "qwen3_tts_stateful_decoder.hmm"}
