"""What Qwen3-TTS Base hears a voice with, against Mimi of transformers and a PyTorch module of the published blocks."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("onnx", reason="encoders are compiled as networks")
transformers = pytest.importorskip("transformers", reason="the oracle")
pytest.importorskip("transformers.models.qwen3_omni_moe", reason="of the language models' checkpoint")
pytest.importorskip("transformers.models.mimi", reason="the oracle")
sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
import speech_networks as networks
from safetensors.torch import load_file, save_file
from speaker_encoder import GROUPS, RATE, SPEAKER, WIDTH, Speaker
from zoo.build import float32_bounds

from tcim_lite.models.checkpoints.checkpoint import Checkpoint
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.speech.codec_encoder import FRAMES, read_sound_encoder, sound_encoder
from tcim_lite.models.speech.speaker_encoder import read_speaker_encoder, speaker_encoder
from tcim_lite.runtime import Module

pytestmark = pytest.mark.oracle

MIMI = {
    "num_filters": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_quantizers": 6,
    "codebook_size": 32,
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
    "num_residual_layers": 2,
    "upsample_groups": 32,
}


def encoder_tensors(model) -> dict[str, torch.Tensor]:
    """Under the names of a checkpoint, whose encoder is a Mimi of an earlier transformers."""
    found = {}
    for name, tensor in model.state_dict().items():
        if name.startswith(("decoder", "upsample")):
            continue
        name = name.replace("encoder.encoder_seanet.", "encoder.", 1)
        name = name.removeprefix("encoder.") if name.startswith(("encoder.encoder_t", "encoder.downsample")) else name
        found[f"encoder.{name}"] = tensor.contiguous()
    return found


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(5)
    config = transformers.MimiConfig(**MIMI, frame_rate=12.5, layer_scale_initial_scale=0.3)
    model = transformers.MimiModel(config).float().eval()
    for name, tensor in model.state_dict().items():
        if name.endswith("embed_sum"):
            tensor.normal_()
        elif name.endswith("cluster_usage"):
            tensor.uniform_(0.5, 1.5)
        elif name.endswith("weight") and tensor.dim() > 1:
            tensor.normal_(0, 1.5 * tensor[0].numel() ** -0.5)
    return model


@pytest.fixture(scope="module")
def speaker():
    torch.manual_seed(6)
    return Speaker().eval()


@pytest.fixture
def checkpoint(encoder, speaker, tmp_path):
    """A whole Base checkpoint."""
    from qwen3_tts_checkpoint import Oracle
    from test_qwen3_tts_codec import save

    folder = Oracle(WIDTH).save(tmp_path / "in")
    change(folder, tts_model_type="base", speaker_encoder_config=SPEAKER)
    torch.manual_seed(4)
    own = save(networks.Codec().eval(), folder / "speech_tokenizer")
    change(own, encoder_config=MIMI, encoder_valid_num_quantizers=GROUPS, encode_downsample_rate=RATE)
    add(own, encoder_tensors(encoder))
    add(folder, {f"speaker_encoder.{name}": tensor for name, tensor in speaker.state_dict().items()})
    return folder


def change(folder: Path, **keys) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **keys}))


def add(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), **tensors}, path)


def compiled(checkpoint: Path, output: Path, **options) -> Path:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        options = {"name": "tts", "context_length": 256, **options}
        compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=output, **options))
    assert not [str(each.message) for each in seen if "left out" in str(each.message)]
    return output


def heard(module: Module, samples: int) -> tuple[np.ndarray, np.ndarray, int]:
    """A drawn sound of so many samples, its codes, and how many frames are said to be its own."""
    sound, mask = np.zeros((1, FRAMES * RATE), np.float32), np.zeros((1, FRAMES * RATE), np.int32)
    sound[0, :samples] = 0.3 * np.random.default_rng(samples).standard_normal(samples)
    mask[0, :samples] = 1
    module.set_input("input_values", sound)
    module.set_input("padding_mask", mask)
    module.run(True)
    return sound, module.get_output("audio_codes").numpy(), int(module.get_output("valid_frames").numpy()[0])


def test_codes_of_a_sound_are_those_of_mimi(encoder, checkpoint):
    own = checkpoint / "speech_tokenizer"
    config = read_sound_encoder(json.loads((own / "config.json").read_text()), Checkpoint(own))
    module = Module.load(onnx_bytes(sound_encoder(config, FRAMES)))
    for samples in (FRAMES * RATE, 40 * RATE + 1):
        sound, codes, valid = heard(module, samples)
        assert valid == -(-samples // RATE)
        with torch.no_grad():
            exact = encoder.double().encode(torch.from_numpy(sound)[None].double(), num_quantizers=GROUPS).audio_codes
            want = encoder.float().encode(torch.from_numpy(sound)[None], num_quantizers=GROUPS).audio_codes
        assert torch.equal(want, exact)  # no row is as near to two of a book
        assert len(want.unique()) > MIMI["codebook_size"] // 2
        np.testing.assert_array_equal(codes, want.numpy().transpose(0, 2, 1))


def test_the_row_of_a_speaker_is_that_of_the_module(speaker, checkpoint):
    raw = json.loads((checkpoint / "config.json").read_text())
    module = Module.load(onnx_bytes(speaker_encoder(read_speaker_encoder(raw, Checkpoint(checkpoint), WIDTH), 60)))
    mels = np.random.default_rng(2).standard_normal((1, 60, SPEAKER["mel_dim"])).astype(np.float32)
    module.set_input("mels", mels)
    module.run(True)
    with torch.no_grad():
        want = speaker(torch.from_numpy(mels)).numpy()
    (bound,) = float32_bounds(speaker, mels)
    assert np.abs(module.get_output("speaker_embedding").numpy() - want).max() <= bound
    assert want.std() > 1e3 * bound


def test_packages_of_base_have_both_under_the_vendors_names(checkpoint, tmp_path):
    """Lengths are whole numbers that float16 cannot hold. Packages of other models leave none of these files behind."""
    output = compiled(checkpoint, tmp_path / "out")
    sounds, speaker = (
        Module.load(str(output / f"tts_{name}.hmm")) for name in ("speech_tokenizer_encoder", "speaker_encoder")
    )
    assert [sounds.get_input_name(at) for at in range(2)] == ["input_values", "padding_mask"]
    assert tuple(sounds.get_output_info("audio_codes").shape) == (1, 53, GROUPS)
    assert sounds.get_input_info("input_values").dtype == np.float16
    assert [heard(sounds, samples)[2] for samples in (101760, 69121, 69120, 1)] == [53, 37, 36, 1]
    assert tuple(speaker.get_input_info("mels").shape) == (1, 400, SPEAKER["mel_dim"])
    assert tuple(speaker.get_output_info("speaker_embedding").shape) == (1, WIDTH)
    change(checkpoint, tts_model_type="custom_voice")
    unused = "tensors that config.json does not ask for, such as 'speaker_encoder"
    with pytest.warns(match="no tokenizer"), pytest.warns(match=unused):
        compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=output, name="tts", context_length=256))
    assert not [path.name for path in output.glob("*encoder.hmm")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_config": {**MIMI, "use_causal_conv": False}}, "use_causal_conv=False is not supported"),
        ({"encoder_config": {**MIMI, "codebook_dim": 8}}, "codebook_dim=8 beside vector_quantization_hidden"),
        ({"encoder_config": {**MIMI, "sliding_window": 9}}, "sliding_window=9 of 106 rows"),
        ({"encoder_config": {**MIMI, "num_filters": 3}}, "num_filters=3, no multiple of compress=2"),
        ({"encoder_config": {**MIMI, "num_hidden_layers": 3}}, "encoder.encoder_transformer.layers.2"),
        ({"encoder_config": [1]}, r"encoder_config must be an object, got \[1\]"),
        ({"encoder_valid_num_quantizers": 7}, "7 codes of a frame, of 6 books"),
        ({"encode_downsample_rate": 1000}, "encode_downsample_rate=1000, which is not 2 or more times 960"),
        ({"encode_downsample_rate": "fast"}, "encode_downsample_rate must be a positive integer"),
    ],
)
def test_encoders_of_sounds_that_do_not_fit_are_refused(checkpoint, changes, message):
    own = checkpoint / "speech_tokenizer"
    change(own, **changes)
    with pytest.raises(CompileError, match=message):
        read_sound_encoder(json.loads((own / "config.json").read_text()), Checkpoint(own))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"enc_channels": [16, 16, 32]}, "beside enc_kernel_sizes"),
        ({"enc_channels": []}, "beside enc_kernel_sizes"),
        ({"enc_channels": [16, 16, 8, 24]}, "whose blocks differ"),
        ({"enc_res2net_scale": 3}, "enc_res2net_scale=3 of 16 channels"),
        ({"enc_dim": 64}, "enc_dim=64 beside rows of the talker of 128"),
        ({"enc_kernel_sizes": [5, 3, 401, 1]}, "reach beyond 400 frames"),
        ({"enc_se_channels": 4}, "blocks.1.se_block.conv1"),
    ],
)
def test_speaker_encoders_that_do_not_fit_are_refused(checkpoint, changes, message):
    raw = {"speaker_encoder_config": {**SPEAKER, **changes}}
    with pytest.raises(CompileError, match=message):
        read_speaker_encoder(raw, Checkpoint(checkpoint), WIDTH)
