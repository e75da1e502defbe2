"""A checkpoint run by transformers in float32, as a dump of the same calls: what counts as right.

Needs torch and transformers; nothing else in this package does. All tokens go through the model at once: in a causal
model a row depends on the rows before it only, so the steps are cut out of the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..hmm import Graph
from ..llm import Package
from ..llm.ports import is_state
from .cut import Model
from .dump import Calls
from .folder import Array, Dump, DumpWriter
from .watched import POSITIONS


def dump_checkpoint(
    checkpoint: Path, package: Package, calls: Calls, folder: Path, others: Collection[str] = ()
) -> Dump:
    """Runs a checkpoint and writes what the graphs of a package name.

    Args:
        checkpoint: Folder of a Hugging Face checkpoint.
        package: Compiled from it: its graphs say which tensors there are and in which chunks.
        calls: Greedy tokens are those of the checkpoint.
        folder: To write.
        others: Values of `model_type` whose modules compute something else than the ops that are named after them.

    Raises:
        ArgumentError: torch or transformers is missing, the checkpoint cannot be loaded, or the graphs take something
            besides tokens that transformers does not show.
    """
    prefill, decode = Model(package.prefill_path), Model(package.decode_path)
    for value in (prefill.graph.values[id_] for id_ in prefill.graph.inputs):
        if is_state(value.name) or (value.role is not None and value.role.name == "per_layer_inputs"):
            raise ArgumentError(
                f"hf:{checkpoint}: transformers does not show {value.name} before each run; compare with a package of "
                "--quant float32 instead"
            )
    family = json.loads(prefill.container.custom_msg or "{}").get("model_type")
    if family in others:
        raise ArgumentError(
            f"hf:{checkpoint}: modules of {family} in transformers compute other values than the ops of these names in "
            "a package; compare with a package of --quant float32 instead"
        )
    try:
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        configs: Any = transformers.AutoConfig
        sees = hasattr(configs.from_pretrained(checkpoint, local_files_only=True), "vision_config")
        loaded: Any = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
        model, loading = loaded.from_pretrained(
            checkpoint, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    except ImportError as error:
        raise ArgumentError(f"hf:{checkpoint}: {error}; pip install torch transformers, or give a package") from None
    except (OSError, RuntimeError, ValueError) as error:  # the second of tensors of other shapes than the config's
        advice = "; compare with a package of --quant float32 instead" if isinstance(error, ValueError) else ""
        raise ArgumentError(f"hf:{checkpoint}: {str(error).splitlines()[0]}{advice}") from None
    _refuse_drawn(checkpoint, model, loading["missing_keys"])
    model.eval()
    prompt = [int(token) for token in calls.prompt]
    answer = [int(token) for token in calls.answer]
    with torch.no_grad():
        for _ in range(calls.greedy):
            answer.append(int(model(torch.tensor([prompt + answer])).logits[0, -1].argmax()))
        rows = _rows_of(model, torch.tensor([prompt + answer]), transformers.DynamicCache())
    writer = DumpWriter(folder, {"checkpoint": str(checkpoint)})
    _number_sums(rows, prefill.graph)
    chunk = int(prefill.graph.values[prefill.graph.inputs[0]].shape[1])
    for begin in range(0, len(prompt), chunk):
        _write_step(writer, prefill, rows, begin, min(chunk, len(prompt) - begin))
    for position in range(len(prompt), len(prompt) + len(answer)):
        _write_step(writer, decode, rows, position, 1)
    writer.close(prompt=prompt, answer=answer)
    return Dump.open(folder)


def _text_model(model: Any) -> Any:
    return getattr(model.model, "language_model", model.model)  # beside a vision tower, which text does not use


def _refuse_drawn(checkpoint: Path, model: Any, missing: Collection[str]) -> None:
    """Raises ArgumentError where transformers has drawn weights at random, as it found none of these names."""
    inner = _text_model(model)
    prefix = next(name for name, module in model.named_modules() if module is inner)
    drawn = sorted(name for name in missing if name.startswith(f"{prefix}.") or not name.startswith("model."))
    if drawn:
        raise ArgumentError(
            f"hf:{checkpoint}: transformers finds no {drawn[0]} in it ({len(drawn)} such tensors) and would draw them "
            "at random; save the checkpoint under its names, or compare with a package of --quant float32"
        )


def _rows_of(model: Any, tokens: Any, cache: Any) -> dict[str, Array]:
    """By name of a value in our graphs: [rows, ...] of all tokens; caches as [rows, heads, D]."""
    found: dict[str, Array] = {}

    def keep(name: str, tensor: Any) -> None:
        found[name] = tensor.detach()[0].numpy().copy()

    def watch(module: Any, path: str, use: Callable[[Any, Any], None]) -> None:
        for part in path.split("."):
            module = getattr(module, part, None)
        if module is not None:
            module.register_forward_hook(lambda _, inputs, output: use(inputs, output))

    def result(name: str) -> Callable[[Any, Any], None]:
        return lambda _, output: keep(name, output[0] if isinstance(output, tuple) else output)

    def operand(name: str) -> Callable[[Any, Any], None]:
        return lambda inputs, _: keep(name, inputs[0])

    inner = _text_model(model)
    watch(inner, "embed_tokens", result("input_1"))
    for index, layer in enumerate(inner.layers):
        attention, mlp = f"layers.{index}.attn", f"layers.{index}.mlp"
        watch(layer, "input_layernorm", result(f"{attention}.norm"))
        for each in "qkv":
            watch(layer, f"self_attn.{each}_proj", result(f"{attention}.{each}_flat"))
            watch(layer, f"self_attn.{each}_norm", result(f"{attention}.{each}_norm"))
        watch(layer, "self_attn.o_proj", operand(f"{attention}.mix"))
        watch(layer, "self_attn.o_proj", result(f"{attention}.out"))
        watch(layer, "post_attention_layernorm", operand(f"add_{2 * index}"))
        watch(layer, "post_attention_layernorm", result(f"{mlp}.norm"))
        watch(layer, "mlp.down_proj", operand(f"{mlp}.silu_mul"))
        watch(layer, "mlp.down_proj", result(f"{mlp}.out"))
        layer.register_forward_hook(
            lambda _, __, output, name=f"add_{2 * index + 1}": keep(
                name, output[0] if isinstance(output, tuple) else output
            )
        )
    watch(inner, "norm", result("final_norm"))
    watch(inner, "rotary_emb", lambda _, output: found.update(cos=_first(output[0]), sin=_first(output[1])))
    # Without the model's config, the cache of a layer with a sliding window keeps all rows, as ours does.
    outcome = model(tokens, past_key_values=cache, use_cache=True)
    keep("logits", outcome.logits)
    for index, layer in enumerate(outcome.past_key_values.layers):
        for which, cached in (("k", layer.keys), ("v", layer.values)):
            keep(f"layers.{index}.attn.{which}_cache", cached.transpose(1, 2))
    _fold_factors(found, model.config.get_text_config())
    grows = (model.config.get_text_config().rope_parameters or {}).get("llama_4_scaling_beta")
    for index in range(len(inner.layers)):
        _add_turned_queries(found, f"layers.{index}.attn")
        if grows:  # behind the rotation, where no module is
            found.pop(f"layers.{index}.attn.q", None)
        parts = [found.get(f"layers.{index}.attn.{each}_flat") for each in "qkv"]
        if all(part is not None for part in parts):
            found[f"layers.{index}.attn.qkv"] = np.concatenate([part for part in parts if part is not None], axis=-1)
    return found


def _fold_factors(found: dict[str, Array], config: Any) -> None:
    """Where packages hold Granite's factors in other numbers: hidden states are divided by the one of residual adds."""
    residual = getattr(config, "residual_multiplier", 1.0)
    factors = {
        "input_1": getattr(config, "embedding_multiplier", 1.0) / residual,
        "final_norm": 1 / getattr(config, "logits_scaling", 1.0),
    }
    for name in found:
        if name in factors or name.startswith("add_"):
            found[name] = found[name] * np.float32(factors.get(name, 1 / residual))


def _number_sums(found: dict[str, Array], graph: Graph) -> None:
    """Numbers the sums of hidden states as the graph does, which counts those with deepstack: zeros for text."""
    sums = {name: found.pop(name) for name in list(found) if name.startswith("add_")}
    number = -1
    for op in graph.ops:
        made, *_ = (graph.values[id_].name for id_ in op.outputs)
        if op.kind != "Add" or not made.startswith("add_"):
            continue
        number += not any("deepstack" in graph.values[id_].name for id_ in op.inputs)
        if f"add_{number}" in sums:
            found[made] = sums[f"add_{number}"]


def _first(tensor: Any) -> Array:
    """[T, R] of [1, T, R], or of [3, 1, T, R] by axes, which are equal for text."""
    return np.asarray(tensor.detach().reshape(-1, *tensor.shape[-2:])[0].numpy())


def _add_turned_queries(found: dict[str, Array], here: str) -> None:
    """Adds the queries after RoPE, which no module returns, where the same rotation turns k into what the cache has."""
    keys = found.get(f"{here}.k_cache")
    turned: dict[str, Array] = {}
    if keys is None:
        return
    for each in "qk":
        flat = found.get(f"{here}.{each}_norm") if f"{here}.{each}_norm" in found else found.get(f"{here}.{each}_flat")
        if flat is None or "cos" not in found:
            return
        heads = flat.reshape(len(flat), -1, keys.shape[-1])
        cos, sin = found["cos"][:, None, :], found["sin"][:, None, :]
        if cos.shape[-1] != heads.shape[-1]:
            return
        half = heads.shape[-1] // 2
        turned[each] = heads * cos + np.concatenate([-heads[..., half:], heads[..., :half]], axis=-1) * sin
    if turned["k"].shape == keys.shape and np.allclose(turned["k"], keys, rtol=1e-5, atol=1e-6):
        found[f"{here}.q"], found[f"{here}.k"] = turned["q"], keys


def _write_step(writer: DumpWriter, model: Model, rows: Mapping[str, Array], valid: int, current: int) -> None:
    """Rows [valid, valid + current) of every value of the graph that transformers showed, in execution order."""
    graph = model.graph
    writer.add_step(model.path.stem, model.path.resolve(), valid, current)
    lengths = {"valid_length": valid, "current_length": current}
    for value in (graph.values[id_] for id_ in graph.inputs):
        role = value.role.name if value.role else value.name
        if role in lengths:
            writer.add("input", value.name, np.array([lengths[role]], np.int32))
        elif role in POSITIONS:
            positions = np.arange(valid, valid + value.shape[-1], dtype=np.int32)
            writer.add("input", value.name, np.broadcast_to(positions, value.shape))
        elif role.startswith("deepstack"):
            writer.add("input", value.name, np.zeros(value.shape, value.dtype))
        elif value.kind == "input" and "input_1" in rows:
            writer.add("input", value.name, _placed(rows["input_1"], value.shape, valid, current).astype(value.dtype))
    outputs = {graph.values[id_].name for id_ in graph.outputs}
    for op in graph.ops:
        for value in (graph.values[id_] for id_ in op.outputs):
            if value.name not in rows:
                continue
            if op.kind == "KVcache":
                cached = rows[value.name][valid : valid + current].swapaxes(0, 1)[None]
                writer.add("cache", value.name, np.ascontiguousarray(cached))
            else:
                kind = "output" if value.name in outputs else "value"
                writer.add(kind, value.name, _placed(rows[value.name], value.shape, valid, current))


def _placed(rows: Array, shape: Sequence[int], valid: int, current: int) -> Array:
    """Rows of a step in a tensor [1, T, ...]; of one row where the graph keeps the last."""
    chosen = rows[valid : valid + current] if shape[1] >= current else rows[valid + current - 1 : valid + current]
    placed = np.zeros((1, shape[1], int(np.prod(shape[2:]))), rows.dtype)
    flat = chosen.reshape(len(chosen), -1)
    placed[0, : len(flat), : flat.shape[1]] = flat  # columns beyond are padding of the compiler
    return placed.reshape(tuple(shape))
