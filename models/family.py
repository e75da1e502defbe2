"""What a model family is to the compiler: one frozen record, all that its file in `families/` holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from .checkpoints.packed_experts import Packing
from .checkpoints.quantized.table import scheme_of
from .common.config_keys import Key, Only, read_keys
from .common.config_rules import Axes, Rope, WindowRule, no_window, read_rope, read_rotary_dim, unnested
from .contract import CONTRACT, Contract
from .model_config import Experts, ModelConfig
from .weights.roles import Role
from .weights.vectors import Function

if TYPE_CHECKING:
    from .blocks import Block
    from .sounds.kind import SoundEncoder
    from .tower_kinds.kind import Tower


@dataclass(frozen=True, slots=True)
class Tensors:
    """Where a weight comes from in a checkpoint.

    Attributes:
        transform: `plain` is one tensor; `matrix` is one of numbers that no Linear multiplies; `row` is a vector that
            is a matrix of one row; `spread` is one along the third of four axes, which becomes a matrix of one column;
            `table` is one of matrices with a row for each head, which turns in pairs of neighbours; `of_heads` is one
            of a tensor for each, in whose name `{expert}` stands for its number; `stack` puts tensors one under the
            other; `alternate` takes two, or the halves of one, in turns of 16 rows, each padded with zeros to a
            multiple of 16; `by_heads` stacks tensors of which the first has several parts head by head, such as a
            head's rows and then those of its gate; `in_pairs` stacks those of q, k and v, or takes the one of all
            three, where heads of q and k turn in pairs of neighbours; `keys_of_heads` and `values_of_heads` are a
            matrix for each head, of a tensor with rows for the keys of a head and then for its values, those of keys
            transposed; `tied` is the embedding where the config ties the two, and otherwise the tensor named.
        names: Of the tensors; `{layer}` stands for the layer's number, `{expert}` for the expert's.
        offset: Added to a vector.
        function: Of the numbers of a vector, before that.
    """

    transform: Literal[
        "plain",
        "matrix",
        "row",
        "spread",
        "table",
        "of_heads",
        "stack",
        "alternate",
        "by_heads",
        "in_pairs",
        "keys_of_heads",
        "values_of_heads",
        "tied",
    ]
    names: tuple[str, ...]
    offset: float = 0.0
    function: Function = "same"

    def of(self, layer: int | None, expert: int | None = None) -> tuple[str, ...]:
        """Returns the names in a layer."""
        return tuple(name.format(layer=layer, expert=expert) for name in self.names)


def plain(name: str) -> Tensors:
    """Returns where a weight comes from that is one tensor."""
    return Tensors("plain", (name,))


def gate_up(module: str, what: str = "weight") -> Tensors:
    """Returns where the matrix of gate and up of an MLP comes from, or their bias."""
    return Tensors("alternate", (f"{module}.gate_proj.{what}", f"{module}.up_proj.{what}"))


def tensors_of(modules: Mapping[tuple[Role, Role], str], prefix: str = "") -> dict[Role, Tensors]:
    """Returns where the weight and the bias of each of some modules come from."""
    return {
        role: plain(f"{prefix}{module}.{what}")
        for roles, module in modules.items()
        for role, what in zip(roles, ("weight", "bias"), strict=True)
    }


# Key of a GGUF file: one number of heads of keys for all layers, or one for each, 0 in layers without attention.
HEADS_BY_LAYER = "attention.head_count_kv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gguf:
    """How llama.cpp's converter writes a family.

    Attributes:
        arch: Its `general.architecture`.
        alike: Other architectures whose files are those of this family.
        interleaved: Rows of q and k come from the first and the second half of a head in turns.
        head_by_head: A checkpoint has the rows of q, k and v in turns of a head, in one tensor, the file one behind the
            other.
        tiled_values: Heads of values of linear attention lie in another order (`checkpoints/gguf/heads.py`).
        head: Key with the size of a head as `config.json` has it. For another key than usual, `derived` reads the other
            sizes of heads, and what RoPE rotates of them.
        fits: Where several families have the architecture, says whether a file is of this one. It takes a function that
            returns the value of a key.
        windowed: The family has sliding windows. Of those with one architecture, one has experts, and of the others
            this is the one with windows.
        layers: What names of a layer's tensors begin with in a Hugging Face checkpoint.
        joined: Tensors that the file has in several: name in a Hugging Face checkpoint, and names in the file
            (`checkpoints/gguf/joined.py`).
        names: Tensors that are not named as in other families, or that others have not: name in the file
            -> name in a Hugging Face checkpoint. A name without `.weight` or `.bias` stands for both; one with
            `{expert}` is a tensor of all experts, or a norm of all heads.
        keys: Numbers that only this family has: key in the file, behind the architecture's name -> in `config.json`.
        also: Other keys that only this family has: `derived` reads them.
        derived: Returns more of `config.json`, given what returns the value of a key or None, and what `config.json`
            has so far. CompileError for what the family does not do.
    """

    arch: str
    alike: tuple[str, ...] = ()
    interleaved: bool = False
    head_by_head: bool = False
    tiled_values: bool = False
    head: str = "attention.key_length"
    fits: Callable[[Callable[[str], Any]], bool] = lambda get: True
    windowed: bool = False
    layers: str = "model.layers"
    joined: tuple[tuple[str, tuple[str, ...]], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    derived: Callable[[Callable[[str], Any], Mapping[str, Any]], Mapping[str, Any]] = lambda get, config: {}


def _nothing(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


def _no_number(raw: Mapping[str, Any]) -> int | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A model family.

    Attributes:
        model_type: Of `config.json`.
        architecture: The entry of `architectures` in `config.json`.
        text_architecture: That of files with the language model alone, whose `model_type` ends in `_text`; empty where
            there are none.
        title: What people call it.
        models: Models that people have of it, for the table of docs/models.md.
        has: What is its own, beside what all families have, for the same table.
        keys: Keys of `config.json`. The sizes that `ModelConfig` has must be among them; flags are for `layer`.
        window: Reads the sliding windows; without it every layer attends to the whole context.
        layer: Returns the blocks of a layer in order.
        tensors: Where every weight comes from.
        contract: Inputs and output of the graphs.
        spelled: Keys that its files call otherwise: name here -> in them, where the former means nothing.
        experts: Reads the sizes of a mixture of experts from the values of `keys`, or that there is none; None without
            one.
        folded: Reads constants of `ModelConfig` that are no keys themselves from the values of `keys`.
        gguf: Its form in GGUF files; None: it is not read from them.
        rope_scaling: What `rope_parameters` is in a config without it.
        rope_theta: Its theta in a config that does not say, or what reads it from one.
        rope_types: What its files call a type of RoPE -> the type.
        axes: Reads from the parameters of RoPE which of the three positions of a token turns each of the `half`
            frequencies, 0 to 2; None for a family whose tokens have one position.
        nested: The object in `config.json` that has the language model's keys, if it is there; `a.b` is b in a.
        rotary: The share of a head that turns, the first elements, in a config that does not say, or what reads it from
            a config and its head_dim; None: all of it, and no other share is read.
        packed_experts: How its files have the experts of a layer in one tensor (`checkpoints/packed_experts.py`).
        tiny: A config for tests, without `architectures` and `model_type`.
        local_rope: Reads the RoPE of layers with a sliding window, where it is another than that of the others, from a
            config and its head_dim.
        vision: Its vision tower, which `--vision` compiles; None without one.
        sound: Its encoder of sounds; None without one.
        classes: Reads from a whole config into how many classes the head of this model sorts tokens; None for one that
            names the next token.
        classifier: The entry of `architectures` of files with such a head, where it is another.
        other_types: Values of `model_type` in files of the same class that models have under names of their own.
        saved_as: The entry that transformers writes, where its class is that of another family; `model_type` decides.
        hidden_after: Reads from a whole config behind how many layers the hidden states are that graphs also return;
            None for none.
        assistant: A small model of the same kind that guesses tokens with the caches of this one's last layers.
        other_values: Modules in transformers compute something else than the ops that are named after them: rows of q
            and k in another order, norms behind attention and MLP, a gate before the Linear that ends attention.
        columns_first: Its files keep the matrices of layers transposed (`checkpoints/columns_first.py`).
        left_out: A pattern that names of tensors contain which no graph needs; empty for none.
    """

    model_type: str
    architecture: str
    title: str
    models: str
    has: str
    keys: tuple[Key | Only, ...]
    layer: Callable[[ModelConfig, int], tuple[Block, ...]]
    tensors: Mapping[Role, Tensors]
    tiny: Mapping[str, Any]
    window: WindowRule = no_window
    contract: Contract = CONTRACT
    experts: Callable[[Mapping[str, Any]], Experts | None] | None = None
    folded: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _nothing
    spelled: Mapping[str, str] = field(default_factory=dict)
    gguf: Gguf | None = None
    rope_scaling: Mapping[str, Any] = field(default_factory=dict)
    rope_theta: float | Callable[[Mapping[str, Any]], float] = 10000.0
    rope_types: Mapping[str, str] = field(default_factory=dict)
    axes: Callable[[Mapping[str, Any], int], Axes] | None = None
    nested: str = ""
    text_architecture: str = ""
    packed_experts: Packing = "turns"
    rotary: float | Callable[[Mapping[str, Any], int], float] | None = None
    local_rope: Callable[[Mapping[str, Any], int], Rope] | None = None
    vision: Tower | None = None
    sound: SoundEncoder | None = None
    classes: Callable[[Mapping[str, Any]], int | None] = _no_number
    classifier: str = ""
    other_types: tuple[str, ...] = ()
    saved_as: str = ""
    hidden_after: Callable[[Mapping[str, Any]], int | None] = _no_number
    assistant: Family | None = None
    other_values: bool = False
    columns_first: bool = False
    left_out: str = ""

    @property
    def tiny_config(self) -> dict[str, Any]:
        """A complete `config.json` for tests."""
        return {"architectures": [self.architecture], "model_type": self.model_type, **self.tiny}

    def is_of(self, raw: Mapping[str, Any]) -> bool:
        """Whether a parsed `config.json` names this family: by `architectures`, or by `model_type` where that is not
        there; both must fit."""
        names, types = [self.architecture], [None, self.model_type, *self.other_types]
        if self.text_architecture:
            names.append(self.text_architecture)
            types.append(f"{self.model_type}_text")
        architectures, model_type = raw.get("architectures"), raw.get("model_type")
        if self.classifier:
            names.append(self.classifier)
        if self.saved_as and model_type is not None:
            names.append(self.saved_as)
        if not architectures:
            return model_type is not None and model_type in types
        listed = isinstance(architectures, (list, str)) and any(name in architectures for name in names)
        return listed and model_type in types

    def tensor(self, role: Role) -> str:
        """Returns the name of the checkpoint tensor of a weight that belongs to no layer."""
        (name,) = self.tensors[role].names
        return name

    def read(self, raw: Mapping[str, Any]) -> ModelConfig:
        """Reads a parsed `config.json`; unknown keys are ignored.

        Raises:
            CompileError: A value that is missing, malformed or not supported.
        """
        scheme_of(raw)
        classes, hidden_after = self.classes(raw), self.hidden_after(raw)
        raw = unnested(raw, self.nested) if self.nested else raw
        raw = {key: value for key, value in raw.items() if key not in self.spelled}
        raw |= {name: raw[theirs] for name, theirs in self.spelled.items() if theirs in raw}
        given = read_keys(self.keys, raw, self.title, self.spelled)
        values = dict(given)
        renamed = {
            "num_layers": values.pop("num_hidden_layers"),
            "num_heads": values.pop("num_attention_heads"),
            "num_kv_heads": values.pop("num_key_value_heads"),
        }
        partial, head_dim = self.rotary is not None, values["head_dim"]
        theta = self.rope_theta(raw) if callable(self.rope_theta) else self.rope_theta
        theta, scaling = read_rope(raw, values["max_position_embeddings"], self.rope_scaling, theta, partial)
        usual = self.rotary(raw, head_dim) if callable(self.rotary) else self.rotary or 1.0
        rotary_dim = read_rotary_dim(raw, scaling, usual, head_dim) if partial else head_dim
        scaling["rope_type"] = self.rope_types.get(scaling["rope_type"], scaling["rope_type"])
        known = {field.name for field in fields(ModelConfig)}
        flags = {key: values.pop(key) for key in tuple(values) if key not in known}
        config = ModelConfig(
            family=self,
            **renamed,
            **{**values, "rotary_dim": rotary_dim, **self.folded(given)},
            rope_theta=theta,
            rope_scaling=scaling,
            windows=self.window(raw, renamed["num_layers"]),
            experts=None if self.experts is None else self.experts(given),
            axes=() if self.axes is None else self.axes(scaling, rotary_dim // 2),
            local_rope=None if self.local_rope is None else self.local_rope(raw, head_dim),
            flags=flags,
            classes=classes,
            hidden_after=hidden_after,
        )
        config.check()
        return config if classes is None else replace(config, tie_word_embeddings=False)
