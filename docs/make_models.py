"""Prints docs/models.md, the table of model families, from their records. Needs the package installed."""

import json
import math
import textwrap
from pathlib import Path

from tcim_lite.hmm.weight_format import LAYOUTS
from tcim_lite.models.blocks import DeltaNet, KeyDeltaNet, altup, sparse_mlp
from tcim_lite.models.blocks.unit_norms import unit_norms
from tcim_lite.models.checkpoints.quantized.table import METHODS
from tcim_lite.models.common.profiles import profile_for
from tcim_lite.models.common.rope import ROPE_TYPES
from tcim_lite.models.compiler.weights import weight_specs
from tcim_lite.models.families import FAMILIES, read_config
from tcim_lite.models.model_config import ModelConfig
from tcim_lite.models.own_graphs import MODELS
from tcim_lite.models.weights.roles import POSITIONS
from tcim_lite.models.weights.spec import LinearSpec

SHAPES = Path(__file__).parent.parent / "benchmarks" / "shapes"
QUANTS = ("w4a8h0_ssfp", "mxfp4a8", "w8a8h1_sefp", "float16")

INTRODUCTION = """# Models
<!-- Made from models/families and benchmarks/shapes by docs/make_models.py: `make docs` does it. -->

`tcim-lite compile` takes a Hugging Face folder or a GGUF file of these families ([compile.md](compile.md)). The last
column says whether it takes [quantised](compile.md#checkpoints) folders. What is special to each stands
[below](#what-is-special-to-each).

"""

REST = """
Whisper, Qwen3-TTS, MiniCPM-o and Fun-Audio-Chat have the graphs that [speech.md](speech.md) lists, π0.5 those of
[policies.md](policies.md). **All other families have** prefill, decode, batch decode, verify, all-logits and draft
graphs, pipeline stages, `.hmms` for several devices, `--position-ids` and every `--quant`, except:

- Vision-language families but MiniCPM-V 4.5 and Gemma 4 [take three positions](vision.md#three-positions), so they have
  no `--position-ids`, and no batch decode unless they have linear attention.
- Families with [linear attention](compile.md#linear-attention), [state-space layers](compile.md#state-space-layers) or
  [short convolutions](compile.md#short-convolutions) have no verify and draft graphs and no `--position-ids`; most of
  the first have [multi-token prediction](compile.md#multi-token-prediction).
- [Gemma 4](compile.md#gemma-4) has some of these graphs only for some of its models. Gemma 3n has prefill, decode,
  verify and all-logits, of one slot on one device.
- Qwen3-Omni with a talker has no pipeline stages, and a forced aligner has a prefill graph alone.

gpt-oss, Laguna and Gemma 4 also have the vendor's mask inputs ([`--masks`](compile.md#masks)), and `--vision` compiles
[vision towers](vision.md#vision-towers). An [LLM example](../examples/README.md) runs every family that has its graphs.
These tests take the families from the records:

| what | tests |
|---|---|
| float32 graphs agree with transformers, also with odd sizes and windows | `llm/test_oracle*.py` |
| splits, slots, instruction sets and threads change no bit | `llm/test_equivalence.py`, `llm/test_window.py` |
| verify, all logits | `llm/test_verify.py` |
| pipeline, several devices | `llm/test_pipeline.py`, `llm/test_tensor_parallel.py` |
| chat, prefix cache, batches, drafts, pipeline, devices; strict mode silent | `examples/test_families.py` |
| three positions and deepstack, against transformers | `llm/test_vision_language.py`, `llm/test_axes.py` |
| three positions in one input | `llm/test_glm_ocr.py` |
| vision towers, against transformers and an ONNX export | `llm/test_vision_tower.py`, `llm/test_strip_tower.py` |
| vision towers that take patches, against transformers | `llm/test_cut_tower.py` |
| vision tower of Gemma 4, against transformers | `llm/test_gemma_vision.py` |
| answers about images, against transformers | `llm/test_image_prompts.py`, `serve/test_serve_images.py` |
| encoder of sounds of Gemma 4, against transformers | `llm/test_gemma_audio.py` |
| assistant of Gemma 4, against transformers and the model alone | `llm/test_*assistant*.py` |
| linear attention, against transformers and token by token | `llm/test_linear_attention.py` |
| latent attention, against transformers, and its caches | `llm/test_latent_attention.py` |
| short convolutions, against transformers and token by token | `llm/test_short_conv.py` |
| slots and forms of states of linear attention | `llm/test_linear_attention_batch.py`, `llm/test_state_forms.py` |
| multi-token prediction, against its definition and plain decode | `llm/test_mtp.py`, `llm/test_mtp_engine.py` |
| hidden states instead of logits, against transformers | `llm/test_hidden_states.py` |
| speech, against transformers | `llm/test_speech.py`, `llm/test_qwen3_asr.py`, `examples/test_speech.py` |
| Qwen3-Omni, against transformers | `llm/test_qwen3_omni.py` |
| MiniCPM-o, Fun-Audio-Chat, against transformers and PyTorch | `llm/test_minicpmo.py`, `llm/test_funaudiochat*.py` |
| π0.5, against transformers and PyTorch | `llm/test_pi05.py` |
| forced aligner, GLM-ASR, against transformers | `llm/test_forced_aligner.py`, `llm/test_glm_asr.py` |
| text to speech, against Qwen3 and Qwen3-Omni in transformers | `llm/test_qwen3_tts.py` |
| its codec and what Base hears a voice with, against PyTorch and Mimi of transformers | `onnx/test_qwen3_tts_*.py` |
| mask inputs against the lengths, and against transformers with the same masks | `llm/test_masks.py` |
| GGUF against safetensors | `models/test_gguf*.py` |
| GPTQ, AWQ and AutoRound against what they stand for | `models/test_four_bit.py` |
| experts in MXFP4 against transformers | `models/test_packed_experts.py` |
| FP8 against what it stands for, and transformers | `models/test_fp8.py` |
| compressed-tensors against what it stands for | `models/test_compressed.py` |
| bitsandbytes, ModelOpt against what they stand for | `models/test_bitsandbytes.py`, `models/test_modelopt.py` |

**Checkpoints tried.** The tests compile random checkpoints made from each record's tiny config, and the demo checkpoint
(Qwen3, trained for this repository). No released weights were compiled, because the tests have no access to them.
Names, keys and sizes are those of transformers' classes and of the public configs.

## Bytes per token
The table shows how many bytes of weights a decode step of one token reads, in MB (10^6 bytes), with the head in its
default format. Only the chosen experts count, and the cache comes on top. The shapes are the configs in
`benchmarks/shapes`. They can be measured with random weights:

```sh
tcim-lite compile benchmarks/shapes/llama-3.2-1b -o out/llama-1b --random-weights && tcim-lite bench out/llama-1b
```

"""

SPECIAL = """
## What is special to each
The items name what differs from Llama: RMS norms before attention and MLP, an MLP with a gate and SiLU, RoPE over whole
heads. Names in `code` are keys of `config.json` that are read.

"""

LIMITS = """
## Not supported
- Other values of `model_type` than those of the table.
- RoPE other than {rope}.
- `partial_rotary_factor` where the list above does not say that RoPE rotates part of a head.
- Quantised checkpoints whose `quant_method` is none of
  {methods}.
  [compile.md](compile.md#checkpoints) says which keys and layouts of these are read.
- Tokenizers in GGUF other than BPE over bytes with the splits that [compile.md](compile.md#gguf-files) names, and
  SentencePiece's BPE.
- PyTorch's own files (`.bin`, `.pt`): convert them to safetensors.
- On CUDA, decode in one launch for some families and options ([which](cuda.md#how-a-model-runs)): such graphs run step
  by step.
"""


def page() -> str:
    """The page in Markdown."""
    columns = ("family", "`model_type`", "models", "vision tower", "GGUF", "quantised")
    rows = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for family in FAMILIES.values():
        gguf = ", ".join(f"`{arch}`" for arch in (family.gguf.arch, *family.gguf.alike)) if family.gguf else "no"
        vision = family.vision.images if family.vision else "no"
        rows.append(f"| {family.title} | `{family.model_type}` | {family.models} | {vision} | {gguf} | yes |")
    others = {record.model_type: record for record in MODELS.values()}.values()
    for part in others:
        rows.append(f"| {part.title} | `{part.model_type}` | {part.models} | {part.images} | no | no |")
    special = "".join(_item(f"**{each.title}**: {each.has}.") for each in (*FAMILIES.values(), *others))
    sizes = [f"| shape | family | {' | '.join(QUANTS)} |", "|---|---|" + "---|" * len(QUANTS)]
    for folder in sorted(SHAPES.iterdir()):
        config = read_config(json.loads((folder / "config.json").read_text()))
        cells = [f"{token_bytes(config, quant) / 1e6:,.0f}" for quant in QUANTS]
        sizes.append(f"| {folder.name} | {config.family.title} | {' | '.join(cells)} |")
    limits = LIMITS.format(rope=", ".join(ROPE_TYPES), methods=", ".join(f"`{method}`" for method in METHODS))
    return INTRODUCTION + "\n".join(rows) + "\n" + REST + "\n".join(sizes) + "\n" + SPECIAL + special + limits


def _item(text: str) -> str:
    """An item of a list, in lines."""
    keep = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 120, initial_indent="- ", subsequent_indent="  ", **keep) + "\n"


def token_bytes(config: ModelConfig, quant: str) -> int:
    """Bytes of weights that a decode step of one token reads."""
    profile = profile_for(quant)
    element = {"float16": 2, "float32": 4}[profile.tensor_dtype]
    blocks = [block for layer in range(config.num_layers) for block in config.blocks(layer)]
    # Computed ones, which all layers share.
    total = 4.0 * max((block.keys for block in blocks if isinstance(block, DeltaNet | KeyDeltaNet)), default=0)
    total += 4 * sum(unit_norms(config)) + element * (config.logit_cap is not None)
    total += element * len([*altup.constants(config), *sparse_mlp.constants(config)])
    for spec in weight_specs(config, profile):
        if spec.role == POSITIONS:  # of which a row is read
            continue
        chosen = config.experts.chosen if config.experts else 1
        if not isinstance(spec, LinearSpec):
            each = element if spec.role.kind == "factors" else 4
            total += each * math.prod(spec.shape) / (spec.experts or 1) * (chosen if spec.experts else 1)
            continue
        *experts, outputs, inputs = spec.shape
        each = -(-outputs // 16) * LAYOUTS[spec.format].block_bytes(inputs)
        every = math.prod(experts)  # of heads all are read
        total += each * (chosen if experts and spec.role.cut != "matrices" else every)
    return round(total)


if __name__ == "__main__":
    print(page(), end="")
