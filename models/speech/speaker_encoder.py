"""What Qwen3-TTS Base hears a speaker with: an ECAPA-TDNN of mel features, whose result is a row of the talker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checkpoints.checkpoint import Checkpoint
from ..common.config_keys import Key, KeyValues, read_keys
from ..common.errors import CompileError
from ..onnx.network_builder import TensorNetwork
from .tensor_shapes import Shapes, conv_shapes

if TYPE_CHECKING:
    import onnx

FRAMES = 400  # of mel features that the vendor's graph takes
PREFIX = "speaker_encoder."
_TITLE, _WHERE = "the speaker encoder of Qwen3-TTS", "config.json: speaker_encoder_config"
_LEAST_VARIANCE = 1e-12
_FEWEST_BLOCKS = 3  # the first one, one that gates itself, and what joins these

# Defaults are those of the published class.
_KEYS = (
    Key("mel_dim", absent=128),
    Key("enc_dim", absent=1024),
    Key("enc_channels", "sizes", absent=(512, 512, 512, 512, 1536)),
    Key("enc_kernel_sizes", "sizes", absent=(5, 3, 3, 3, 1)),
    Key("enc_dilations", "sizes", absent=(1, 2, 3, 4, 1)),
    Key("enc_attention_channels", absent=128),
    Key("enc_res2net_scale", absent=8),
    Key("enc_se_channels", absent=128),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerConfig(KeyValues):
    """Sizes of the encoder, and where its tensors are; their names begin with `PREFIX`."""

    tensors: Checkpoint

    @property
    def gated(self) -> range:
        """The numbers of the blocks that gate themselves."""
        return range(1, len(self["enc_channels"]) - 1)

    def shapes(self) -> Shapes:
        """Yields the names of all tensors, below the prefix, and their shapes."""
        channels, taps = self["enc_channels"], self["enc_kernel_sizes"]
        part, gate, inner = self["enc_res2net_scale"], self["enc_se_channels"], self["enc_attention_channels"]
        yield from conv_shapes("blocks.0.conv", channels[0], self["mel_dim"], taps[0])
        for block in self.gated:
            here, wide = f"blocks.{block}", channels[block]
            for name in ("tdnn1", "tdnn2"):
                yield from conv_shapes(f"{here}.{name}.conv", wide, wide, 1)
            for number in range(part - 1):
                name = f"{here}.res2net_block.blocks.{number}.conv"
                yield from conv_shapes(name, wide // part, wide // part, taps[block])
            yield from conv_shapes(f"{here}.se_block.conv1", gate, wide, 1)
            yield from conv_shapes(f"{here}.se_block.conv2", wide, gate, 1)
        yield from conv_shapes("mfa.conv", channels[-1], channels[-1], taps[-1])
        yield from conv_shapes("asp.tdnn.conv", inner, 3 * channels[-1], 1)
        yield from conv_shapes("asp.conv", channels[-1], inner, 1)
        yield from conv_shapes("fc", self["enc_dim"], 2 * channels[-1], 1)


class _Network(TensorNetwork):
    """Values are [1, channels, frames]; statistics have one frame."""

    def __init__(self, config: SpeakerConfig) -> None:
        super().__init__("speaker_encoder", lambda name: config.tensors.read(f"{PREFIX}{name}"))
        self._time = self.constant(np.array([2], np.int64))
        self._least = self.constant(np.float32(_LEAST_VARIANCE))

    def conv(self, x: str, name: str, dilation: int = 1) -> str:
        """A convolution behind whose ends the sound is reflected."""
        weight, bias = (self.tensor(f"{name}.{part}") for part in ("weight", "bias"))
        if more := (weight.shape[2] - 1) * dilation:
            pads = self.constant(np.array([0, 0, more // 2, 0, 0, more - more // 2], np.int64))
            x = self.op("Pad", x, pads, mode="reflect")
        return self.op("Conv", x, self.constant(weight), self.constant(bias), dilations=[dilation])

    def active(self, x: str, name: str, dilation: int = 1) -> str:
        """A convolution and what is positive of it."""
        return self.op("Relu", self.conv(x, f"{name}.conv", dilation))

    def statistics(self, x: str, shares: str | None = None) -> tuple[str, str]:
        """Mean and deviation over time, of equal or of given shares."""

        def mean(values: str) -> str:
            if shares is None:
                return self.op("ReduceMean", values, self._time, keepdims=1)
            return self.op("ReduceSum", self.op("Mul", values, shares), self._time, keepdims=1)

        middle = mean(x)
        apart = self.op("Sub", x, middle)
        return middle, self.op("Sqrt", self.op("Max", mean(self.op("Mul", apart, apart)), self._least))

    def gated(self, x: str, name: str, parts: int, dilation: int) -> str:
        """TDNN, convolutions of parts that see the one before, TDNN, and a gate of means over time."""
        y = self.active(x, f"{name}.tdnn1")
        width = self.tensor(f"{name}.tdnn1.conv.weight").shape[0] // parts
        found = [self.part(y, 1, 0, width)]
        for number in range(1, parts):
            own = self.part(y, 1, number * width, (number + 1) * width)
            own = own if number == 1 else self.op("Add", own, found[-1])
            found.append(self.active(own, f"{name}.res2net_block.blocks.{number - 1}", dilation))
        y = self.active(self.op("Concat", *found, axis=1), f"{name}.tdnn2")
        gate = self.op("Relu", self.conv(self.op("ReduceMean", y, self._time, keepdims=1), f"{name}.se_block.conv1"))
        gate = self.op("Sigmoid", self.conv(gate, f"{name}.se_block.conv2"))
        return self.op("Add", self.op("Mul", y, gate), x)

    def attentive(self, x: str) -> str:
        """Statistics of shares that attention makes of the frames and of their plain statistics: [1, 2 C, 1]."""
        weight, bias = (self.tensor(f"asp.tdnn.conv.{part}") for part in ("weight", "bias"))
        # One product for each third of the matrix: statistics are the same for all frames.
        own, middle, apart = np.split(weight, 3, axis=1)
        y = self.op("Conv", x, self.constant(own), self.constant(bias))
        for part, statistic in zip((middle, apart), self.statistics(x), strict=True):
            y = self.op("Add", y, self.op("Conv", statistic, self.constant(part)))
        y = self.conv(self.op("Tanh", self.op("Relu", y)), "asp.conv")
        return self.op("Concat", *self.statistics(x, self.op("Softmax", y, axis=2)), axis=1)


def speaker_encoder(config: SpeakerConfig, frames: int) -> onnx.ModelProto:
    """Mel features [1, frames, mel] -> a row [1, enc_dim]."""
    net, dilations = _Network(config), config["enc_dilations"]
    x = net.transposed(net.input("mels", (1, frames, config["mel_dim"])))
    x = net.active(x, "blocks.0", dilations[0])
    found = []
    for block in config.gated:
        x = net.gated(x, f"blocks.{block}", config["enc_res2net_scale"], dilations[block])
        found.append(x)
    x = net.active(net.op("Concat", *found, axis=1), "mfa", dilations[-1])
    row = net.conv(net.attentive(x), "fc")
    net.op("Squeeze", row, net.constant(np.array([2], np.int64)), result="speaker_embedding")
    return net.build(["speaker_embedding"])


def read_speaker_encoder(raw: Mapping[str, Any], tensors: Checkpoint, width: int) -> SpeakerConfig:
    """Reads the `speaker_encoder_config` of a parsed `config.json`, and checks the tensors; rows have `width` elements.

    Raises:
        CompileError: A value that is malformed or not supported, sizes that do not fit together, or a tensor that is
            missing or has another shape.
    """
    section = raw.get("speaker_encoder_config") or {}
    if not isinstance(section, Mapping):
        raise CompileError(f"{_WHERE} must be an object, got {section!r:.80}")
    config = SpeakerConfig(values=read_keys(_KEYS, section, _TITLE), tensors=tensors)
    channels, taps, dilations = (config[f"enc_{name}"] for name in ("channels", "kernel_sizes", "dilations"))
    parts = config["enc_res2net_scale"]
    problems = {
        f"enc_channels={channels} beside enc_kernel_sizes={taps} and enc_dilations={dilations}": (
            not _FEWEST_BLOCKS <= len(channels) == len(taps) == len(dilations)
        ),
        f"enc_channels={channels}, whose blocks differ or have another sum than the last": (
            len(set(channels[:-1])) != 1 or sum(channels[1:-1]) != channels[-1]
        ),
        f"enc_res2net_scale={parts} of {channels[0] if channels else 0} channels": (
            parts < 2 or not channels or channels[0] % parts
        ),
        f"enc_dim={config['enc_dim']} beside rows of the talker of {width}": config["enc_dim"] != width,
        f"enc_kernel_sizes={taps} of enc_dilations={dilations}, which reach beyond {FRAMES} frames": any(
            (k - 1) * d >= FRAMES for k, d in zip(taps, dilations, strict=False)
        ),
    }
    for problem, there in problems.items():
        if there:
            raise CompileError(f"{_WHERE}: {problem} is not supported by {_TITLE}")
    for name, shape in config.shapes():
        tensors.check(f"{PREFIX}{name}", shape)
    return config
