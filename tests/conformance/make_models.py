"""Writes the models that the conformance suite ships: tcim_lite/conformance/models, or the folder that is named.

The files are golden: test_models.py makes them again and compares the bytes.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import tcim_lite
from tcim_lite import hmm
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

sys.path.insert(0, str(Path(__file__).parent.parent))

from op_graphs import experts_model, linear_model, norm_model, rope_model, silu_mul_model
from tiny_graphs import add_graph, attention_graph, heads_graphs, linear_graph, linear_weight, mask_graph, sinks_graph

SHIPPED = Path(__file__).parents[2] / "tcim_lite/conformance/models"
PRODUCER = "tcim_lite"  # no version: the files stay as they are
# As small as a Qwen3 can be with grouped heads, a head that is not tied and widths that are no powers of two.
LLM = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 131,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
}
LLM_OPTIONS = {"prefill_length": 16, "context_length": 64, "verify_length": 4, "seed": 7}


def make(folder: Path) -> None:
    """Writes every model and models.json."""
    roles: dict[str, str] = {}

    def write(
        role: str, graphs: hmm.Graph | list[hmm.Graph], weights: list = (), suffix: str = ".hmm", **options
    ) -> None:
        roles[role] = role + suffix
        hmm.write_model(folder / roles[role], graphs, weights, producer=PRODUCER, **options)

    write("add", add_graph(), custom_msg='{"kind": "add"}', ncore=2)
    for role, shape in {"add_4x5": (4, 5), "add_wide": (1, 256, 64), "add_slow": (1, 256, 4096)}.items():
        write(role, add_graph(shape, "float32"))

    data = np.ascontiguousarray(linear_weight().T)
    write("linear", linear_graph(4), [hmm.WeightData("w", "float32", "linear_f32", (16, 8), data)])
    with hmm.WeightsWriter(folder / "linear.hmw", producer=PRODUCER) as shared:
        entry = shared.add("w", "float32", "linear_f32", (16, 8), data)
    for role, tokens in {"linear_prefill": 4, "linear_decode": 1}.items():
        write(role, linear_graph(tokens, role), [entry], sibling=hmm.Sibling("linear.hmw", shared.id))

    for role, model in {"norm": norm_model, "silu_mul": silu_mul_model, "rope": rope_model}.items():
        write(role, *model())
    write("experts", *experts_model())
    write("rope_positions", *rope_model(given=True))
    for role in ("linear_w4", "linear_w8", "linear_f16"):
        write(role, *linear_model(role))

    for role, tokens in {"attention_prefill": 4, "attention_decode": 1, "attention_verify": 3}.items():
        write(role, attention_graph(tokens))
    write("attention_long", attention_graph(8, context=600))
    for role, tokens in {"attention_window": 4, "attention_window_decode": 1}.items():
        write(role, attention_graph(tokens, window=5))
    for role, tokens in {"attention_sinks": 4, "attention_sinks_decode": 1}.items():
        write(role, *sinks_graph(tokens))
    for role, tokens in {"attention_mask": 4, "attention_mask_decode": 1}.items():
        write(role, mask_graph(tokens))
    for role, tokens in {"attention_mask_window": 4, "attention_mask_window_decode": 1}.items():
        write(role, mask_graph(tokens, window=5))

    split = hmm.Split([-1, -1, -1, 1, 1], [-1])
    for role, tokens, heads in (
        ("heads_2_1", 4, (2, 1)),
        ("heads_1_2", 4, (1, 2)),
        ("heads_1_1_1", 4, (1, 1, 1)),
        ("heads_decode_2_1", 1, (2, 1)),
    ):
        write(role, heads_graphs(tokens, heads), suffix=".hmms", split=split)
    write("heads", heads_graphs(4, (3,)))

    roles |= make_llm(folder)
    (folder / "models.json").write_text(json.dumps(roles, indent=2) + "\n", encoding="utf-8")


def make_llm(folder: Path) -> dict[str, str]:
    """Compiles the LLM: all graphs, also decode for three slots, share one file of weights."""
    made = {"prefill": "llm_prefill", "decode": "llm_decode", "verify": "llm_verify"}
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(), a_fixed_version():
        warnings.simplefilter("ignore")  # there is no tokenizer, and none is wanted
        scratch = Path(name)
        (scratch / "config.json").write_text(json.dumps(LLM))
        for batch, stages in ((1, made), (3, {"decode": "llm_decode_batch"})):
            output = scratch / str(batch)
            compile_checkpoint(
                CompileOptions(
                    checkpoint=scratch, output=output, name="llm", random_weights=True, batch=batch, **LLM_OPTIONS
                )
            )
            for stage, role in stages.items():
                shutil.copy(output / f"llm_{stage}.hmm", folder / f"{role}.hmm")
            shutil.copy(output / "llm.hmw", folder)
        shutil.copy(output / "hmquant/quant_embedding.bin", folder / "llm_embedding.bin")
    roles = [*made.values(), "llm_decode_batch"]
    return {role: f"{role}.hmm" for role in roles} | {"llm_embedding": "llm_embedding.bin"}


@contextmanager
def a_fixed_version() -> Iterator[None]:
    """The compiler writes its version into its files."""
    version, tcim_lite.__version__ = tcim_lite.__version__, "golden"
    yield
    tcim_lite.__version__ = version


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED
    target.mkdir(parents=True, exist_ok=True)
    make(target)
