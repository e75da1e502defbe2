"""What the vendor's program for Gemma 4 with an assistant does, over a package."""

import numpy as np
import pytest
from test_gemma import GEMMA4, local_mask

import tcim_lite.runtime as rt
from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
pytest.importorskip("transformers", reason="the oracle needs transformers")

T, P, C, WINDOW, HIDDEN = 5, 32, 128, GEMMA4["sliding_window"], -65504.0
WIDTH = FAMILIES["gemma4"].tiny["hidden_size"]
SHARED = [f"shared_{what}_cache_{kind}" for kind in ("sliding", "full") for what in ("key", "value")]


class Program:
    """The vendor's: inputs by their places, masks of the last tokens, positions that go on with the guesses."""

    def __init__(self, package):
        self.package = package
        manager = rt.WeightManager(0)
        self.prefill = rt.load(package.prefill_path, option=rt.Option(manager))
        caches = [name for name in names(self.prefill) if "cache" in name]
        self.decode = rt.load(package.decode_path, option=rt.Option(manager).set_dummy_tensors(caches))
        for name in caches:
            self.decode.set_input(name, self.prefill.get_dev_input(name))
        path = package.folder / f"{package.name}_assistant.hmm"
        self.assistant = rt.load(path, option=rt.Option(manager).set_dummy_tensors(SHARED))
        last = [[name for name in caches if kind in name][-2:] for kind in ("kcache", "vcache")]
        for name, source in zip(SHARED, (last[0][0], last[1][0], last[0][1], last[1][1]), strict=True):
            self.assistant.set_input(name, self.prefill.get_dev_input(source))
        table = torch.load(package.folder / "hmquant/quant_embedding.pt", weights_only=True)["weight"]
        self.embedding = table.float().numpy()

    def verify(self, module, tokens, valid):
        """Logits and hidden states of a run."""
        length, columns = module.get_input_info("input_1").shape[1], module.get_input_info(names(module)[3]).shape[3]
        rows = np.zeros((1, length, WIDTH), np.float32)
        rows[0, : len(tokens)] = self.embedding[tokens]
        mask = local_mask(valid, len(tokens), length, columns, WINDOW)
        return run(module, rows, np.int32([valid]), np.int32([len(tokens)]), mask)

    def read(self, tokens):
        for first in range(0, len(tokens), P):
            logits, hidden = self.verify(self.prefill, tokens[first : first + P], first)
        assert logits.shape[:2] == (1, 1)
        return logits, hidden

    def guess(self, token, hidden, past, step):
        local, whole = (np.full(self.assistant.get_input_info(names(self.assistant)[i]).shape, HIDDEN) for i in (3, 4))
        widest = self.decode.get_input_info(names(self.decode)[3]).shape[3]
        valid = min(local.shape[-1], widest, past)
        local[..., max(0, valid - WINDOW) : valid] = 0
        whole[..., :past] = 0
        row = np.concatenate([self.embedding[token][None, None], hidden], 2)
        return run(self.assistant, row, np.int32([past + step]), np.int32([1]), local, whole)


def names(module):
    return [module.get_input_name(i) for i in range(module.get_num_inputs())]


def run(module, *values):
    for name, value in zip(names(module), values, strict=False):
        module.set_input(name, np.ascontiguousarray(value, module.get_input_info(name).dtype))
    module.run(True)
    return [module.get_output(module.get_output_name(i)).numpy() for i in range(2)]
