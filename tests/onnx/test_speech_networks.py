"""Networks as the vendor's speech demos run them: whole numbers and truth values at their ends, masks by lengths."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.models.onnx import OnnxOptions, compile_onnx

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # of torch's exporter
torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("onnxscript", reason="torch's exporter needs it")
from torch import nn
from torch.nn import functional as fn

WIDTH, HEADS = 64, 4


class Memory(nn.Module):
    """Attention, and a depthwise convolution of its values; what lies behind the length counts as nothing."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.taps = nn.Conv1d(WIDTH, WIDTH, 7, padding=3, groups=WIDTH, bias=False)

    def forward(self, x, seen):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        v = v * seen[..., None]
        memory = (self.taps(v.transpose(1, 2)).transpose(1, 2) + v) * seen[..., None]

        def heads(part):
            return part.view(1, -1, HEADS, WIDTH // HEADS).transpose(1, 2)

        hidden = seen.eq(0)[:, None, None]
        scores = heads(q) @ heads(k).transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        shares = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1).masked_fill(hidden, 0.0)
        return x + self.out((shares @ heads(v)).transpose(1, 2).reshape(x.shape)) + memory


class Tagged(nn.Module):
    """As SenseVoice: ids of language and style become rows before the sound; the length comes back longer."""

    def __init__(self):
        super().__init__()
        self.tags, self.start, self.layer = nn.Embedding(16, 40), nn.Linear(40, WIDTH), Memory()
        self.head = nn.Linear(WIDTH, 90)

    def forward(self, speech, speech_lengths, language, textnorm):
        events = self.tags(torch.tensor([[1, 2]]))
        rows = torch.cat([self.tags(language)[:, None], events, self.tags(textnorm)[:, None], speech], 1)
        lengths = speech_lengths + 4
        seen = (torch.arange(rows.shape[1])[None] < lengths[:, None]).float()
        return torch.log_softmax(self.head(self.layer(self.start(rows), seen)), -1), lengths


class Framed(nn.Module):
    """As emotion2vec: samples become frames; which frames are behind the samples is an output of truth values."""

    def __init__(self):
        super().__init__()
        kernels, channels = ((10, 5), (3, 2), (2, 2)), (1, 16, 16)
        self.convs = nn.ModuleList(nn.Conv1d(c, 16, k, s) for c, (k, s) in zip(channels, kernels, strict=True))
        self.start, self.layer = nn.Linear(16, WIDTH), Memory()

    def forward(self, waveform, valid_samples):
        x, frames = waveform[:, None], valid_samples
        for conv in self.convs:
            x = fn.gelu(conv(x))
            step = torch.div(frames - conv.kernel_size[0], conv.stride[0], rounding_mode="floor")
            frames = step + 1
        x = self.start(x.transpose(1, 2))
        behind = torch.arange(x.shape[1])[None] >= frames[:, None]
        return self.layer(x.masked_fill(behind[..., None], 0.0), (~behind).float()), behind


class Marked(nn.Module):
    """As CT-Transformer: ids of words, and their number, to marks."""

    def __init__(self):
        super().__init__()
        self.words, self.layer, self.head = nn.Embedding(120, WIDTH), Memory(), nn.Linear(WIDTH, 6)

    def forward(self, inputs, text_lengths):
        seen = (torch.arange(inputs.shape[1])[None] < text_lengths[:, None]).float()
        return self.head(self.layer(self.words(inputs), seen))


class Speaker(nn.Module):
    """As CAM++: means of a sound and of its parts gate it; mean and deviation over time become an embedding."""

    def __init__(self):
        super().__init__()
        self.front, self.taps = nn.Conv2d(1, 4, 3, (2, 1), 1), nn.Conv1d(4 * 10, WIDTH, 5, 2, 4, dilation=2)
        self.gate, self.out = nn.Conv1d(WIDTH, WIDTH, 1), nn.Linear(2 * WIDTH, 24)

    def forward(self, feature):
        x = fn.relu(self.front(feature.permute(0, 2, 1)[:, None])).flatten(1, 2)
        x = fn.relu(self.taps(x))
        parts = fn.avg_pool1d(x, 20, 20, ceil_mode=True)[..., None].expand(-1, -1, -1, 20).flatten(2)
        x = x * torch.sigmoid(self.gate(x.mean(-1, keepdim=True) + parts[..., : x.shape[-1]]))
        return self.out(torch.cat([x.mean(-1), x.std(-1)], -1))


class Masked(nn.Module):
    """As WeNet: masks are inputs, one to add to the scores and one to multiply with."""

    def __init__(self):
        super().__init__()
        self.front, self.start = nn.Conv2d(1, 4, 3, 2), nn.Linear(4 * 19, WIDTH)
        self.qkv, self.wide = nn.Linear(WIDTH, 3 * WIDTH), nn.Conv1d(WIDTH, 2 * WIDTH, 1)

    def forward(self, input, mask_attn, mask_cnn):
        x = fn.relu(self.front(input)).transpose(1, 2).flatten(2)
        x = self.start(x)
        q, k, v = (part.view(1, -1, HEADS, 16).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = torch.softmax(q @ k.transpose(-1, -2) / 4 + mask_attn, -1) @ v
        x = x + mixed.transpose(1, 2).reshape(x.shape)
        return x + fn.glu(self.wide(x.transpose(1, 2) * mask_cnn), 1).transpose(1, 2)


def whole(*numbers: int):
    return torch.tensor(numbers, dtype=torch.int32)


def masks():
    live = (torch.arange(33) < 25).float()
    return (1 - live)[None, None, None] * -128, live[None, None]


NETWORKS = {
    "tagged": (
        Tagged,
        lambda: (torch.randn(1, 30, 40), whole(21), whole(3), whole(15)),
        ("speech", "speech_lengths", "language", "textnorm"),
        ("logits", "lengths"),
    ),
    "framed": (
        Framed,
        lambda: (torch.randn(1, 900), whole(640)),
        ("waveform", "valid_samples"),
        ("features", "mask"),
    ),
    "marked": (
        Marked,
        lambda: (torch.arange(40, dtype=torch.int32)[None] * 3, whole(31)),
        ("inputs", "text_lengths"),
        ("marks",),
    ),
    "speaker": (Speaker, lambda: (torch.randn(1, 97, 20),), ("feature",), ("embedding",)),
    "masked": (
        Masked,
        lambda: (torch.randn(1, 1, 67, 39), *masks()),
        ("input", "mask_attn", "mask_cnn"),
        ("output",),
    ),
}


@pytest.fixture(params=NETWORKS)
def loaded(request, tmp_path):
    """A module, what to give it and what torch makes of that."""
    make, arguments, inputs, outputs = NETWORKS[request.param]
    torch.manual_seed(5)
    network, given = make().eval(), arguments()
    file = tmp_path / f"{request.param}.onnx"
    with torch.no_grad():
        want = network(*given)
        torch.onnx.export(
            network, given, file, input_names=inputs, output_names=outputs, dynamo=False, opset_version=17
        )
    compile_onnx(OnnxOptions(model=file, output=tmp_path / "out", name="net", quant="float32"))
    module = rt.load(tmp_path / "out" / "net.hmm")
    want = want if isinstance(want, tuple) else (want,)
    return module, dict(zip(inputs, given, strict=True)), dict(zip(outputs, want, strict=True))


def test_the_demos_calls_give_what_torch_gives(loaded):
    module, given, want = loaded
    assert [module.get_input_name(i) for i in range(module.get_num_inputs())] == list(given)
    assert [module.get_output_name(i) for i in range(module.get_num_outputs())] == list(want)
    for name, value in given.items():
        info = module.get_input_info(name)
        assert tuple(info.shape) == tuple(value.shape)
        assert (np.dtype(info.dtype) == np.int32) == (value.dtype == torch.int32)
        module.set_input(name, value.numpy().astype(info.dtype))
    module.run()
    module.sync()
    for name, value in want.items():
        got = module.get_output(name).numpy()
        assert got.shape == tuple(value.shape)
        if value.dtype.is_floating_point:
            assert np.abs(got - value.numpy()).max() <= 1e-4 * value.abs().max()
        else:
            assert (got.astype(value.numpy().dtype) == value.numpy()).all()


@pytest.mark.parametrize("loaded", ["masked"], indirect=True)
def test_a_tensor_of_another_dtype_is_cast_into_one_of_the_inputs(loaded):
    """The WeNet demo makes both tensors of the input's info, and gives masks of bytes."""
    module, given, want = loaded
    info = module.get_input_info("input")
    source = rt.Tensor(info.astype(np.float16), given["input"].numpy().astype(np.float16))
    target = rt.Tensor(info).to_host(to_contiguous=True)
    source.cast_to(target)
    module.set_input("input", target)
    for name in ("mask_attn", "mask_cnn"):
        module.set_input(name, given[name].numpy().astype(np.int8))
    module.run(True)
    got = module.get_output("output").cast(np.float32).numpy()
    assert np.abs(got - want["output"].numpy()).max() <= 2e-3 * want["output"].abs().max()
