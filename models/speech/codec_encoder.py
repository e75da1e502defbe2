"""From a sound to the codes of Qwen3-TTS: the encoder of Mimi, and the nearest rows of residual codebooks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checkpoints.checkpoint import Checkpoint
from ..common.config_keys import Key, KeyValues, Only, read_keys, size
from ..common.config_rules import object_in
from ..common.errors import CompileError
from .attention_network import HIDDEN, AttentionNetwork, rotation
from .codec_config import plain_theta
from .tensor_shapes import Shapes, conv_shapes

if TYPE_CHECKING:
    import onnx

FRAMES = 53  # that the vendor's graph takes: 101,760 samples
_TITLE, _WHERE = "the encoder of Qwen3-TTS's codec", "speech_tokenizer/config.json: encoder_config"
_LEAST_USAGE = 1e-5

# Defaults are those of the published class.
_KEYS: tuple[Key | Only, ...] = (
    Key("hidden_size", absent=512),
    Key("num_filters", absent=64),
    Key("num_residual_layers", absent=1),
    Key("upsampling_ratios", "sizes", absent=(8, 6, 5, 4), null=(8, 6, 5, 4)),
    Key("kernel_size", absent=7),
    Key("last_kernel_size", absent=3),
    Key("residual_kernel_size", absent=3),
    Key("dilation_growth_rate", absent=2),
    Key("compress", absent=2),
    Key("codebook_size", absent=2048),
    Key("codebook_dim", absent=256, null=lambda values: values["hidden_size"]),
    Key("vector_quantization_hidden_dimension", absent=256),
    Key("num_quantizers", absent=32),
    Key("num_semantic_quantizers", absent=1),
    Key("num_hidden_layers", absent=8),
    Key("intermediate_size", absent=2048),
    Key("num_attention_heads", absent=8),
    Key("num_key_value_heads", absent=8),
    Key(
        "head_dim",
        absent=lambda values: values["hidden_size"] // values["num_attention_heads"],
        null=lambda values: values["hidden_size"] // values["num_attention_heads"],
    ),
    Key("norm_eps", "number", absent=1e-5),
    Key("sliding_window", absent=250),
    Only("audio_channels", 1),
    Only("hidden_act", "gelu"),
    Only("use_causal_conv", True),
    Only("pad_mode", "constant"),
    Only("use_conv_shortcut", False),
    Only("attention_bias", False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig(KeyValues):
    """Sizes of the encoder, and its tensors.

    Attributes:
        tensors: Where they are; their names begin with `encoder.`.
        theta: Of the rotation.
        groups: Codes of a frame.
        rate: Samples of a frame.
    """

    tensors: Checkpoint
    theta: float
    groups: int
    rate: int

    @property
    def step(self) -> int:
        """Rows of the transformer for a frame."""
        return self.rate // math.prod(self["upsampling_ratios"])

    def books(self) -> Iterator[tuple[str, int]]:
        """Yields the two quantisers, and how many of the codes are theirs."""
        semantic = self["num_semantic_quantizers"]
        yield "quantizer.semantic_residual_vector_quantizer", semantic
        yield "quantizer.acoustic_residual_vector_quantizer", self.groups - semantic

    def convolutions(self) -> Iterator[tuple[str, int, int, int]]:
        """Yields name, outputs, inputs and taps of the first ones, in the order of `encoder.layers`."""
        wide = self["num_filters"]
        yield "0", wide, 1, self["kernel_size"]
        at = 1
        for ratio in reversed(self["upsampling_ratios"]):
            inner = wide // self["compress"]
            for _ in range(self["num_residual_layers"]):
                yield f"{at}.block.1", inner, wide, self["residual_kernel_size"]
                yield f"{at}.block.3", wide, inner, 1
                at += 1
            yield f"{at + 1}", 2 * wide, wide, 2 * ratio
            at, wide = at + 2, 2 * wide
        yield f"{at + 1}", self["hidden_size"], wide, self["last_kernel_size"]

    def shapes(self) -> Shapes:
        """Yields the names of all tensors that the graph holds, and their shapes."""
        hidden, inner = self["hidden_size"], self["intermediate_size"]
        for name, *sizes in self.convolutions():
            yield from conv_shapes(f"encoder.layers.{name}.conv", *sizes)
        heads = self["num_attention_heads"] * self["head_dim"]
        for layer in range(self["num_hidden_layers"]):
            here = f"encoder_transformer.layers.{layer}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                yield from ((f"{here}.{norm}.{part}", (hidden,)) for part in ("weight", "bias"))
            for vector in ("self_attn_layer_scale", "mlp_layer_scale"):
                yield f"{here}.{vector}.scale", (hidden,)
            yield from ((f"{here}.self_attn.{name}_proj.weight", (heads, hidden)) for name in "qkv")
            yield f"{here}.self_attn.o_proj.weight", (hidden, heads)
            yield f"{here}.mlp.fc1.weight", (inner, hidden)
            yield f"{here}.mlp.fc2.weight", (hidden, inner)
        yield "downsample.conv.weight", (hidden, hidden, 2 * self.step)
        depth = self["codebook_dim"]
        for quantiser, books in self.books():
            if depth != hidden:
                yield f"{quantiser}.input_proj.weight", (depth, hidden, 1)
            for book in range(books):
                yield f"{quantiser}.layers.{book}.codebook.cluster_usage", (self["codebook_size"],)
                yield f"{quantiser}.layers.{book}.codebook.embed_sum", (self["codebook_size"], depth)


class _Network(AttentionNetwork):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__("speech_tokenizer_encoder", lambda name: config.tensors.read(f"encoder.{name}"))
        self.sizes = config

    def conv(self, x: str, name: str, stride: int = 1, dilation: int = 1) -> str:
        """Sees what is before it; lengths are multiples of the strides."""
        name = f"encoder.layers.{name}.conv"
        weight, bias = (self.tensor(f"{name}.{part}") for part in ("weight", "bias"))
        past = (weight.shape[2] - 1) * dilation + 1 - stride
        operands = (x, self.constant(weight), self.constant(bias))
        return self.op("Conv", *operands, pads=[past, 0], dilations=[dilation], strides=[stride])

    def nearest(self, rows: str, book: str) -> tuple[str, str]:
        """Rows [1, T, C] -> the nearest rows of a codebook, as numbers [1, T] and as rows."""
        usage = np.maximum(self.tensor(f"{book}.cluster_usage"), _LEAST_USAGE)
        table = self.tensor(f"{book}.embed_sum") / usage[:, None]
        # Squared distances without the square of the row itself, which is the same for all.
        squares = np.square(table, dtype=np.float64).sum(1).astype(np.float32)
        codes = self.op("ArgMin", self.linear(rows, (-2 * table).astype(np.float32), squares), axis=-1, keepdims=0)
        return codes, self.op("Gather", self.constant(table), codes)


def sound_encoder(config: EncoderConfig, frames: int) -> onnx.ModelProto:
    """Samples [1, n] and their mask [1, n] -> codes [1, frames, groups], and how many frames are the sound's, [1]."""
    net, samples = _Network(config), frames * config.rate
    sound = net.input("input_values", (1, samples))
    mask = net.input("padding_mask", (1, samples), integer=True)
    x = _convolved(net, config, net.reshape(sound, 1, 1, samples))

    rows = frames * config.step
    at = np.arange(rows)
    seen = net.constant(np.where(at <= at[:, None], 0.0, HIDDEN))
    cos, sin = (net.constant(table) for table in rotation(rows, config["head_dim"], config.theta))
    x, epsilon = net.transposed(x), config["norm_eps"]
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder_transformer.layers.{layer}"
        y, _ = net.attention(net.norm(x, f"{name}.input_layernorm", epsilon), name, seen, (cos, sin), None, rows)
        x = net.op("Add", x, y)
        y = net.norm(x, f"{name}.post_attention_layernorm", epsilon)
        y = net.op("Gelu", net.linear(y, net.tensor(f"{name}.mlp.fc1.weight")))
        x = net.op("Add", x, net.linear(y, net.scaled(f"{name}.mlp.fc2", f"{name}.mlp_layer_scale")))

    x = net.transposed(x)
    first = net.part(x, 2, 0, 1)  # stands before the first row, as often as the window reaches there
    weight = net.constant(net.tensor("downsample.conv.weight"))
    x = net.op("Conv", net.op("Concat", *[first] * config.step, x, axis=2), weight, strides=[config.step])
    _codes(net, config, net.transposed(x), frames)

    total = net.op("ReduceSum", mask, net.constant(np.array([1], np.int64)), keepdims=0)
    more, rate = (net.constant(np.array([number], np.int32)) for number in (config.rate - 1, config.rate))
    net.op("Div", net.op("Add", total, more), rate, result="valid_frames")
    return net.build(["audio_codes", "valid_frames"], integers=["audio_codes", "valid_frames"])


def _convolved(net: _Network, config: EncoderConfig, x: str) -> str:
    """Samples [1, 1, n] -> [1, H, rows]."""
    x, at = net.conv(x, "0"), 1
    for ratio in reversed(config["upsampling_ratios"]):
        for number in range(config["num_residual_layers"]):
            y = net.conv(net.op("Elu", x), f"{at}.block.1", dilation=config["dilation_growth_rate"] ** number)
            x = net.op("Add", x, net.conv(net.op("Elu", y), f"{at}.block.3"))
            at += 1
        x = net.conv(net.op("Elu", x), f"{at + 1}", stride=ratio)
        at += 2
    return net.conv(net.op("Elu", x), f"{at + 1}")


def _codes(net: _Network, config: EncoderConfig, rows: str, frames: int) -> None:
    """Rows [1, frames, H] -> `audio_codes`: each book says what is left by those before it."""
    found = []
    for quantiser, books in config.books():
        left = rows
        if config["codebook_dim"] != config["hidden_size"]:
            left = net.linear(rows, net.tensor(f"{quantiser}.input_proj.weight")[..., 0])
        for book in range(books):
            codes, nearest = net.nearest(left, f"{quantiser}.layers.{book}.codebook")
            found.append(net.reshape(codes, 1, frames, 1))
            left = net.op("Sub", left, nearest)
    net.op("Cast", net.op("Concat", *found, axis=2), to=6, result="audio_codes")


def read_sound_encoder(raw: Mapping[str, Any], tensors: Checkpoint) -> EncoderConfig:
    """Reads the `encoder_config` of a parsed `config.json` of the folder `speech_tokenizer`, and checks the tensors.

    Raises:
        CompileError: A value that is malformed or not supported, sizes that do not fit together, or a tensor that is
            missing or has another shape.
    """
    section = object_in(raw, "encoder_config", "speech_tokenizer/config.json")
    config = EncoderConfig(
        values=read_keys(_KEYS, section, _TITLE),
        tensors=tensors,
        theta=plain_theta(section, _WHERE, _TITLE),
        groups=size("encoder_valid_num_quantizers", raw.get("encoder_valid_num_quantizers", 16)),
        rate=size("encode_downsample_rate", raw.get("encode_downsample_rate", 1920)),
    )
    _check(config)
    for name, shape in config.shapes():
        tensors.check(f"encoder.{name}", shape)
    return config


def _check(config: EncoderConfig) -> None:
    heads, hop, books = config["num_attention_heads"], math.prod(config["upsampling_ratios"]), config["num_quantizers"]
    semantic, depth, hidden = (config[k] for k in ("num_semantic_quantizers", "codebook_dim", "hidden_size"))
    wanted = config["vector_quantization_hidden_dimension"]
    narrow = config["num_filters"] % config["compress"]
    problems = {
        f"num_key_value_heads={config['num_key_value_heads']} of {heads} heads": config["num_key_value_heads"] != heads,
        f"head_dim={config['head_dim']}, which is odd": config["head_dim"] % 2,
        f"codebook_dim={depth} beside vector_quantization_hidden_dimension={wanted}": depth != wanted,
        f"{config.groups} codes of a frame, of {books} books and {semantic} semantic ones": (
            not semantic < config.groups <= books
        ),
        f"encode_downsample_rate={config.rate}, which is not 2 or more times {hop} samples": (
            config.rate % hop or config.rate < 2 * hop
        ),
        f"sliding_window={config['sliding_window']} of {FRAMES * config.step} rows": (
            config["sliding_window"] < FRAMES * config.step
        ),
        f"num_filters={config['num_filters']}, no multiple of compress={config['compress']}": narrow,
        f"hidden_size={hidden} of {heads} heads": hidden < heads,
    }
    for problem, there in problems.items():
        if there:
            raise CompileError(f"{_WHERE}: {problem} is not supported by {_TITLE}")
