"""Sizes of a package, read from its files: the server's process never opens a device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tcim_lite import hmm
from tcim_lite.hmm.layout import ITEM_BYTES
from tcim_lite.llm import Package
from tcim_lite.llm.engine.slots import POST_NORM_HIDDEN
from tcim_lite.llm.images.pooled import tokens_see_each_other
from tcim_lite.llm.json_object import read_object
from tcim_lite.llm.package import HIDDEN_STATES
from tcim_lite.llm.ports import is_cache, is_lora, is_state


@dataclass(frozen=True)
class Shape:
    """What the graphs of a package say.

    Attributes:
        slots: B.
        context: Rows C of a slot.
        row_bytes: Of one token in all caches of a slot.
        vocab_size: V, or the width of hidden states.
        embeds: The graphs return hidden states in place of logits (`compile --hidden-states`).
        all_logits: Prefill gives the logits of every token (`compile --all-logits`).
        devices: Numbers of devices that there are graphs for.
        carries: Layers with linear attention have states, which only go forward.
        guesses: It was compiled with multi-token prediction.
        sees: It has a vision tower.
        sees_itself: Tokens of an image see each other, so it has to be in one run (Gemma 4).
        lora: Shape and dtype of each input that takes what a LoRA adds (`compile --lora`), by name.
    """

    slots: int
    context: int
    row_bytes: int
    vocab_size: int
    embeds: bool
    all_logits: bool
    devices: tuple[int, ...]
    carries: bool
    guesses: bool
    sees: bool
    sees_itself: bool
    lora: dict[str, tuple[tuple[int, ...], str]]

    @property
    def lora_rank(self) -> int:
        """The smallest of all Linears, those of merged ones being sums; 0 without such inputs."""
        return min((shape[2] for name, (shape, _) in self.lora.items() if name.endswith("_down")), default=0)

    @classmethod
    def read(cls, package: Package) -> Shape:
        """Reads the prefill and decode graphs.

        Raises:
            FileNotFoundError: One of them is missing.
            ValueError: The decode graph has no KV caches.
        """
        single = package.decode_path.is_file()
        several = hmm.read(package.graph("decode.hmms")) if package.has("decode.hmms") or not single else None
        path = package.decode_path if single else package.graph("decode.hmms")
        decode = hmm.read(path) if single or several is None else several
        prefill = hmm.read(package.prefill_path if single else package.graph("prefill.hmms"))
        graph, prompt = decode.graph, prefill.graph
        caches = [
            (place, graph.values[number])
            for place, number in enumerate(graph.inputs if graph else ())
            if graph and is_cache(graph.values[number].name)
        ]
        if not graph or not prompt or not caches:
            raise ValueError(f"{path}: has no KV caches; name the folder of a compiled language model with attention")
        slots, context = graph.values[graph.inputs[0]].shape[0], caches[0][1].shape[2]
        cached = 0
        for place, cache in caches:
            cut = decode.split is not None and decode.split.inputs[place] != hmm.WHOLE
            cached += math.prod(cache.shape) * ITEM_BYTES[cache.dtype] * (decode.ndevice if cut else 1)
        return cls(
            slots=slots,
            context=context,
            row_bytes=cached // (slots * context),
            vocab_size=prompt.values[prompt.outputs[0]].shape[-1],
            embeds=graph.values[graph.outputs[0]].name == HIDDEN_STATES,
            all_logits=prompt.values[prompt.outputs[0]].shape[-2] == prompt.values[prompt.inputs[0]].shape[1],
            devices=(1,) * single + ((several.ndevice,) if several else ()),
            carries=any(is_state(graph.values[number].name) for number in graph.inputs),
            guesses=any(prompt.values[number].name == POST_NORM_HIDDEN for number in prompt.outputs),
            sees=any(path.name.startswith(f"{package.name}_visual") for path in package.folder.glob("*.hmm")),
            sees_itself=tokens_see_each_other(read_object(package.tokenizer_folder / "config.json")),
            lora={
                value.name: (tuple(value.shape), value.dtype)
                for value in (graph.values[number] for number in graph.inputs)
                if is_lora(value.name)
            },
        )
