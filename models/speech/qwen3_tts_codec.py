"""The codec of Qwen3-TTS, from codes to sound: residual codebooks, a small transformer, convolutions that upsample.

Once of many frames at a time, and once of a few frames with states, as the vendor's two graphs of it. That of
Qwen3-Omni has the former only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .attention_network import END, HIDDEN
from .codec_config import CodecConfig
from .codec_network import CodecNetwork

if TYPE_CHECKING:
    import onnx

FRAMES, CHUNK = 300, 12  # that the two graphs take
_AHEAD = 4  # frames at the end of a chunk that wait for the next one, and of context before


def whole_codec(codec: CodecConfig, frames: int) -> onnx.ModelProto:
    """Codes [1, groups, frames] -> samples [1, 1, n]."""
    net = CodecNetwork(codec, "code2wav" if codec.embedded else "speech_tokenizer")
    codes = net.input("codes", (1, codec["num_quantizers"], frames), integer=True)
    x = net.embedded(codes) if codec.embedded else net.transposed(net.conv(net.quantised(codes), "pre_conv.conv"))
    at = np.arange(frames)
    seen = (at <= at[:, None]) & (at > at[:, None] - codec["sliding_window"])
    mask = net.constant(np.where(seen, 0.0, HIDDEN))
    cos, sin = (net.constant(table) for table in codec.rotation(frames))
    x, _ = net.transformer(x, mask, (cos, sin), None, frames)
    net.sound(net.transposed(x), "wav")
    return net.build(["wav"])


def streamed_codec(codec: CodecConfig, frames: int) -> onnx.ModelProto:
    """Codes [1, frames, groups] and states -> samples, how many of them are final, and states."""
    net, window, layers = CodecNetwork(codec, "stateful_decoder"), codec["sliding_window"], codec["num_hidden_layers"]
    codes = net.input("audio_codes", (1, frames, codec["num_quantizers"]), integer=True)
    columns = net.input("pre_conv_history", (1, codec["codebook_dim"], 2))
    waiting, before = (net.input(n, (1, codec["latent_dim"], _AHEAD)) for n in ("latent_buffer", "conv_history"))
    is_last = net.input("is_last", (1,))
    valid, count = (net.input(name, (1,), integer=True) for name in ("kv_valid_len", "valid_frames"))
    cache = (1, codec["num_key_value_heads"], window, codec["head_dim"])
    past = [[net.input(f"past_{kind}_{i}", cache) for i in range(layers)] for kind in ("key", "value")]

    joined = net.op("Concat", columns, net.quantised(net.transposed(codes)), axis=2)
    net.part(joined, 2, -2, END, "next_pre_conv_history")
    x = net.transposed(net.conv(joined, "pre_conv.conv", padded=False))
    x, caches = net.transformer(x, net.seen(valid, frames), net.turned(valid, frames), past, frames)
    rows = net.op("Concat", waiting, net.transposed(x), axis=2)
    net.part(rows, 2, -_AHEAD, END, "next_latent_buffer")

    started = net.row_of(np.minimum(np.arange(window + 1), 1.0)[:, None], valid)  # [1]: 0 in the first run
    total = net.op("Add", net.op("Mul", started, net.constant([float(_AHEAD)])), net.op("Cast", count, to=1))
    held = net.op("Relu", net.op("Sub", total, net.constant([float(_AHEAD)])))
    kept = net.op("Sub", net.constant([1.0]), is_last)
    done = net.op("Add", net.op("Mul", is_last, total), net.op("Mul", kept, held))
    net.op("Mul", net.op("Cast", done, to=6), net.constant(np.array([codec.samples], np.int32)), result="valid_samples")
    first = net.op("Mul", net.op("Sub", net.constant([1.0]), started), net.constant([float(_AHEAD)]))
    places = net.op("Add", net.op("Add", first, done), net.constant(np.arange(_AHEAD) - float(_AHEAD)))
    net.op("Gather", rows, net.op("Cast", net.op("Relu", places), to=6), result="next_conv_history", axis=2)
    wave = net.sound(net.op("Concat", before, rows, axis=2), "wave")
    wave = net.reshape(wave, 1, (2 * _AHEAD + frames) * codec.samples)
    net.part(wave, 1, _AHEAD * codec.samples, END, "final_wav")

    outputs = ["final_wav", "valid_samples", "next_pre_conv_history", "next_latent_buffer", "next_conv_history"]
    outputs += [f"next_{kind}_{i}" for kind in ("key", "value") for i in range(layers)]
    assert [name for kind in (0, 1) for name in (pair[kind] for pair in caches)] == outputs[5:]
    return net.build(outputs, integers=["valid_samples"])
