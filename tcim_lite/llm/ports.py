"""What the inputs of an LLM graph are for, by their names and order.

Input 0 is the rows [B, T, H]. Then every slot has its lengths; its tokens' positions or masks, if it takes them; and
its caches. Graphs of vision-language models have three positions before the lengths, along time, height and width, or
all of them in one input, and may have deepstack inputs behind, shaped like the rows. Graphs with linear attention have
a mask behind the lengths, and behind the caches what each run hands to the next: the outputs behind the logits, in the
same order. Behind all of these may be what a LoRA adds to weights, which all slots share (`lora.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_FEWEST = 2  # inputs of a slot: its lengths
_LAST_HIDDEN = "last_hidden_state"


@dataclass(frozen=True, slots=True)
class Lane:
    """Names of one slot's inputs.

    Attributes:
        valid: Its tokens in the cache before a run, int32 [1].
        current: Its tokens in a run, int32 [1].
        positions: None; one, int32 [1, T]; or three, int32 [T], along time, height and width; or these in one,
            [3, 1, T].
        joined: They are three in one.
        masks: None; two [1, 1, T, S], of layers with a window and of the others; or the first alone.
        layer_inputs: None, or what layers take of the tokens, [1, T, layers, size].
        deepstack: What is added to the hidden states, [1, T, H]: zeros for text.
        caches: [1, Hkv, C, D].
        linear_mask: None, or [1, T]: 1 for tokens, 0 for padding.
        carried: What linear attention takes from the run before.
    """

    valid: str
    current: str
    positions: tuple[str, ...]
    masks: tuple[str, ...]
    deepstack: tuple[str, ...]
    caches: tuple[str, ...]
    linear_mask: str | None = None
    layer_inputs: str | None = None
    joined: bool = False
    carried: tuple[str, ...] = ()

    def rows(self, module: Any, rows: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Input 0 and what layers take of the tokens, which is behind each row of the embedding (`TokenRows`), by name.

        Raises:
            ValueError: It is not there.
        """
        name = module.get_input_name(0)
        if self.layer_inputs is None:
            return {name: rows}
        width = module.get_input_info(name).shape[-1]
        shape = module.get_input_info(self.layer_inputs).shape
        if rows.shape[-1] != width + shape[-2] * shape[-1]:
            raise ValueError(
                f"the graph takes rows of {width} numbers and per-layer inputs of {shape[-2]} * {shape[-1]} for each "
                f"token, got {rows.shape[-1]} numbers; use the embedding that Package.embedding_for gives"
            )
        others = np.ascontiguousarray(rows[..., width:]).reshape(shape)
        return {name: np.ascontiguousarray(rows[..., :width]), self.layer_inputs: others}

    def set_rows(self, module: Any, rows: np.ndarray[Any, Any]) -> None:
        """Sets what `rows` returns, and raises as it does."""
        for name, values in self.rows(module, rows).items():
            module.set_input(name, values)

    @property
    def has_axes(self) -> bool:
        """Whether tokens have positions along three axes."""
        return self.joined or len(self.positions) > 1

    def set_text_positions(self, module: Any, valid: int) -> None:
        """Sets the positions, if there are any, for tokens of text from position `valid` on, for the next run."""
        for name in self.positions:
            module.set_input(name, positions_of_text(valid, module.get_input_info(name).shape))

    def set_positions(self, module: Any, positions: np.ndarray[Any, Any]) -> None:
        """Sets the positions [3, n] of the first n tokens of the next run, of a graph that has axes."""
        for axis, name in enumerate(self.positions):
            shape = module.get_input_info(name).shape
            values = np.zeros((3 if self.joined else 1, shape[-1]), np.int32)
            values[:, : positions.shape[1]] = positions if self.joined else positions[axis]
            module.set_input(name, values.reshape(shape))

    def set_place(self, module: Any, valid: np.ndarray[Any, Any], place: np.ndarray[Any, Any] | None = None) -> None:
        """Sets the valid length, int32 [1], of a run of one token of text, and its positions, if there are any.

        Args:
            module: The graph.
            valid: The length.
            place: The position, int32 [1], where it is not `valid`.
        """
        place = valid if place is None else place
        module.set_input(self.valid, valid)
        if self.joined:
            module.set_input(self.positions[0], np.repeat(place, 3).reshape(3, 1, 1))
            return
        for name in self.positions:
            module.set_input(name, place)

    def set_linear_mask(self, module: Any, current: int) -> None:
        """Says which rows of the next run are tokens, the first `current` ones."""
        if self.linear_mask is not None:
            info = module.get_input_info(self.linear_mask)
            mask = np.zeros(info.shape, info.dtype)
            mask[:, :current] = 1
            module.set_input(self.linear_mask, mask)

    def clear_deepstack(self, module: Any) -> None:
        """Zeros the deepstack inputs, as text wants them; they keep that."""
        self.set_deepstack(module, ())

    def set_deepstack(self, module: Any, stacks: Sequence[np.ndarray[Any, Any]]) -> None:
        """Sets the deepstack inputs for the next run: [n, H] by number, of its first n tokens; zeros for the others."""
        for name in self.deepstack:
            info = module.get_input_info(name)
            values, number = np.zeros(info.shape, info.dtype), int(name.rpartition("_")[2])  # a stage has its own ones
            if number < len(stacks):
                values[0, : len(stacks[number])] = stacks[number]
            module.set_input(name, values)


def is_cache(name: str) -> bool:
    """Whether an input of this name is a KV cache."""
    return any(part in name for part in ("kcache", "vcache", "key_cache", "value_cache"))


def is_state(name: str) -> bool:
    """Whether an input of this name is what linear attention takes from the run before."""
    return name.startswith(("past_conv_cache", "past_recurrent_state"))


def is_lora(name: str) -> bool:
    """Whether an input of this name has what a LoRA adds to a weight; it is of no slot."""
    return name.startswith("lora_bundle_")


def positions_of_text(valid: int, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """What an input of positions takes, of this shape, for tokens of text that follow `valid` others."""
    return np.ascontiguousarray(np.broadcast_to(np.arange(valid, valid + shape[-1], dtype=np.int32), shape))


def tokens_of(module: Any) -> int:
    """How many tokens of a sequence a run of an LLM graph takes, T."""
    length: int = module.get_input_info(module.get_input_name(0)).shape[1]
    return length


def hidden_of_verify(module: Any) -> str:
    """The output from which an assistant guesses, of a decode graph that verifies its guesses; else nothing."""
    results = (module.get_output_name(i) for i in range(module.get_num_outputs()))
    return _LAST_HIDDEN if _LAST_HIDDEN in results and tokens_of(module) > 1 else ""


def check_decode(module: Any) -> None:
    """Raises ValueError unless a decode graph takes one token a run."""
    if (length := tokens_of(module)) != 1:
        raise ValueError(f"the decode graph takes {length} tokens a run, expected 1; this is a verify or prefill graph")


def lanes_of(module: Any) -> list[Lane]:
    """The slots of an LLM graph, in order.

    Raises:
        ValueError: It is another graph: its inputs are too few.
    """
    batch = module.get_input_info(module.get_input_name(0)).shape[0]
    names = [module.get_input_name(i) for i in range(1, module.get_num_inputs())]
    names = [name for name in names if not is_lora(name)]
    each = len(names) // batch
    if each < _FEWEST:
        raise ValueError(
            "the graph has no lengths for each of its slots, so it is not that of a language model: its inputs are "
            f"{module.get_input_name(0)}, {', '.join(names):.200}"
        )
    return [_lane(names[begin : begin + each]) for begin in range(0, len(names), each)]


def _lane(names: list[str]) -> Lane:
    joined = names[0] == "position_ids"
    axes = 3 if "_position_ids" in names[0] else int(joined)
    valid, current, *others = names[axes:]
    # Caches, or of a model that has none its states.
    first = next((i for i, name in enumerate(others) if is_cache(name) or is_state(name)), len(others))
    masks = tuple(name for name in others[:first] if "attention_mask" in name)
    linear = next((name for name in others[:first] if "linear_attn_mask" in name), None)
    inputs = next((name for name in others[:first] if name.startswith("per_layer_inputs")), None)
    rest = tuple(name for name in others[:first] if name not in masks and name not in (linear, inputs))
    positions, deepstack = (tuple(names[:axes]), rest) if axes else (rest, ())
    caches, carried = ([name for name in others[first:] if is_cache(name) == wanted] for wanted in (True, False))
    return Lane(
        valid=valid,
        current=current,
        positions=positions,
        masks=masks,
        deepstack=deepstack,
        caches=tuple(caches),
        linear_mask=linear,
        layer_inputs=inputs,
        joined=joined,
        carried=tuple(carried),
    )
