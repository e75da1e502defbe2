"""pi0.5: a Gemma that reads images and a text at once, and a smaller one, the expert, that makes actions.

The expert sees the keys and values of the former. Its norms are conditioned by the step of the flow that it is in. Both
take a mask that alone says what each row sees; the rows of a run see one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..checkpoints.checkpoint import Checkpoint
from ..common.config_keys import Key, KeyValues, Only, read_keys
from ..common.config_rules import no_window
from ..common.errors import CheckpointError, CompileError
from ..contract import Port
from ..families.shared.dense import CONTRACT, KEYS, TENSORS
from ..family import Family, Tensors, plain, tensors_of
from ..model_config import ModelConfig
from ..towers.siglip import siglip_tensors
from ..weights import encoder_roles, roles

MODEL_TYPE, TITLE = "pi05", "π0.5"
LAST_HIDDEN = "last_hidden_state"
_MODELS, _HEADS, _PATCH = "paligemma_with_expert.", 16, 14
_CACHE_ROWS = 1024  # programs pad their masks to a multiple of so many columns
_VIEWS = 3  # of a config that names no image
# Hidden and intermediate size, layers and heads of the language models; heads have 256 elements.
_VARIANTS = {"gemma_2b": (2048, 16384, 18, 8), "gemma_300m": (1024, 4096, 18, 8)}
_VOCABULARY, _HEAD_DIM = 257152, 256
_SIGLIP = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27}

# Defaults are those of LeRobot's class.
_CONFIG_KEYS: tuple[Key | Only, ...] = (
    Key("chunk_size", absent=50),
    Key("max_action_dim", absent=32),
    Key("tokenizer_max_length", absent=200),
    Key("empty_cameras", "count", absent=0),
    Key("image_resolution", "sizes", absent=(224, 224)),
    Key("paligemma_variant", "choice", absent="gemma_2b"),
    Key("action_expert_variant", "choice", absent="gemma_300m"),
)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(), Mlp(gelu="gelu_tanh")


_GEMMA = Family(
    model_type=MODEL_TYPE,
    architecture="",
    title=f"the language model of {TITLE}",
    models="",
    has="",
    keys=(*KEYS, Key("max_position_embeddings", absent=8192)),
    window=no_window,
    layer=_layer,
    tensors={role: replace(source, offset=1.0) if role.kind == "norm" else source for role, source in TENSORS.items()},
    contract=replace(CONTRACT, seen_mask=Port("mask", "attention_mask", ""), hidden=LAST_HIDDEN),
    tiny={},
)
_NORMS = {
    roles.ATTENTION_NORM: "model.layers.{layer}.input_layernorm",
    roles.MLP_NORM: "model.layers.{layer}.post_attention_layernorm",
    roles.FINAL_NORM: "model.norm",
}
_EXPERT = replace(
    _GEMMA,
    title=f"the expert of {TITLE}",
    keys=(*_GEMMA.keys, Key("condition_size")),
    tensors={
        **{role: source for role, source in TENSORS.items() if role != roles.EMBEDDING},
        **tensors_of({pair: f"{_NORMS[norm]}.dense" for norm, pair in roles.CONDITIONS.items()}),
    },
    contract=replace(_GEMMA.contract, condition=Port("condition", "cond", "")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(KeyValues):
    """Sizes of a policy. Those of its models are the tensors', or without tensors those of the variants that its config
    names.

    Attributes:
        views: Images of a prompt.
        store: The checkpoint; None to draw random weights.
    """

    views: int
    store: Checkpoint | None

    @property
    def prefix(self) -> int:
        """Rows of a prompt."""
        return int(self.views * self.patches + self["tokenizer_max_length"])

    @property
    def context(self) -> int:
        """Rows of the caches."""
        return -(-(self.prefix + self["chunk_size"]) // _CACHE_ROWS) * _CACHE_ROWS

    @property
    def patches(self) -> int:
        """Of an image; each is a row of the prompt."""
        return int((self["image_resolution"][0] // _PATCH) ** 2)

    def name(self, module: str) -> str:
        """Returns the name of a tensor or a module in the checkpoint, where all names may begin with `model.`."""
        outer = "model." if self.store is None or any(name.startswith("model.") for name in self.store.names()) else ""
        return outer + module

    def shape(self, name: str, axes: int) -> tuple[int, ...]:
        """Returns the shape of a tensor of the checkpoint, which has so many axes."""
        assert self.store is not None
        shape = self.store.shape(self.name(name))
        if len(shape) != axes or 0 in shape:
            raise CheckpointError(f"tensor {self.name(name)!r} has shape {list(shape)}, expected {axes} axes")
        return shape

    def count(self, layers: str) -> int:
        """Returns how many layers there are below a name."""
        assert self.store is not None
        outer = self.name(layers)
        rest = (name.removeprefix(outer).split(".", 1)[0] for name in self.store.names() if name.startswith(outer))
        return max((int(number) for number in rest if number.isdecimal()), default=-1) + 1

    @property
    def tower(self) -> str:
        """The module of the vision tower."""
        module = f"{_MODELS}paligemma.model.vision_tower."
        inner = f"{module}vision_model."
        has_inner = self.store is None or any(name.startswith(self.name(inner)) for name in self.store.names())
        return inner if has_inner else module

    @property
    def tower_tensors(self) -> dict[roles.Role, Tensors]:
        """Where the weights of the vision tower are."""
        linear = self.name(f"{_MODELS}paligemma.model.multi_modal_projector.linear")
        ends = zip((encoder_roles.MERGER_DOWN, encoder_roles.MERGER_DOWN_BIAS), ("weight", "bias"), strict=True)
        made = {role: plain(f"{linear}.{what}") for role, what in ends}
        return {**siglip_tensors(self.name(self.tower).removesuffix(".")), **made}

    @property
    def unread(self) -> tuple[str, ...]:
        """What names of tensors begin with that no graph reads: heads, and SigLIP's own."""
        heads = (f"{_MODELS}{model}.lm_head." for model in ("paligemma", "gemma_expert"))
        return tuple(map(self.name, (*heads, f"{self.tower}head.")))

    @property
    def siglip(self) -> dict[str, int]:
        """Sizes of the vision tower."""
        sizes = {"num_attention_heads": _HEADS, "patch_size": _PATCH}
        if self.store is None:
            return {**sizes, **_SIGLIP}
        layers = f"{self.tower}encoder.layers."
        inner, hidden = self.shape(f"{layers}0.mlp.fc1.weight", 2)
        found = {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": self.count(layers)}
        if hidden % _HEADS:
            raise CompileError(f"{TITLE}: the vision tower's rows of {hidden} are no multiple of its {_HEADS} heads")
        return {**sizes, **found}

    @property
    def table(self) -> str:
        """The tensor of the embedding, which is the head's where the two are stored once."""
        own, head = (f"{_MODELS}paligemma.{name}" for name in ("model.language_model.embed_tokens", "lm_head"))
        stored = self.store is not None and self.name(f"{own}.weight") not in self.store
        return self.name(f"{head if stored else own}.weight")

    def gemma(self) -> ModelConfig:
        """Returns the sizes of the language model."""
        own = {roles.EMBEDDING: plain(self.table)}
        return self._read(_GEMMA, f"{_MODELS}paligemma.model.language_model.", self["paligemma_variant"], own)

    def expert(self) -> ModelConfig:
        """Returns those of the expert."""
        return self._read(_EXPERT, f"{_MODELS}gemma_expert.model.", self["action_expert_variant"], {})

    def check(self, gemma: ModelConfig, expert: ModelConfig) -> None:
        """Raises CompileError if the expert does not fit the caches of the language model."""
        caches = [(config.num_layers, config.head_dim) for config in (gemma, expert)]
        if caches[0] != caches[1]:
            raise CompileError(
                f"{TITLE}: the expert has {caches[1][0]} layers with heads of {caches[1][1]}, the language model, "
                f"whose caches it reads, {caches[0][0]} with heads of {caches[0][1]}"
            )

    def _read(self, family: Family, module: str, variant: str, others: Mapping[roles.Role, Tensors]) -> ModelConfig:
        """A model whose tensors are those of the family below `module`, but for `others`."""
        layers, vocabulary, head_dim = f"{module}layers.", _VOCABULARY, _HEAD_DIM
        tensors = {
            role: replace(source, names=tuple(self.name(module + name.removeprefix("model.")) for name in source.names))
            for role, source in family.tensors.items()
        }
        if self.store is None:
            hidden, inner, count, heads = _VARIANTS[variant]
        else:
            if not (count := self.count(layers)):
                raise CheckpointError(f"{self.store.folder} has no tensors {self.name(layers)}*, those of {TITLE}")
            inner, hidden = self.shape(f"{layers}0.mlp.gate_proj.weight", 2)
            head_dim, _ = self.shape(f"{layers}0.self_attn.k_proj.weight", 2)  # of the only head of keys and values
            rows, _ = self.shape(f"{layers}0.self_attn.q_proj.weight", 2)
            heads = rows // head_dim
            if roles.EMBEDDING in family.tensors:
                vocabulary, _ = self.store.shape(self.table)
        return replace(family, tensors={**tensors, **others}).read(
            {
                "vocab_size": vocabulary,
                "hidden_size": hidden,
                "intermediate_size": inner,
                "num_hidden_layers": count,
                "num_attention_heads": heads,
                "num_key_value_heads": 1,
                "head_dim": head_dim,
                "condition_size": hidden,
            }
        )


def read_policy(raw: Mapping[str, Any], store: Checkpoint | None) -> Policy:
    """Reads a parsed `config.json` of LeRobot.

    Raises:
        CompileError: A value that is malformed or not supported, or models that do not fit together.
    """
    values = read_keys(_CONFIG_KEYS, raw, TITLE)
    resolution = values["image_resolution"]
    if len(resolution) != 2 or resolution[0] != resolution[1] or resolution[0] % _PATCH:
        raise CompileError(
            f"config.json: image_resolution={list(resolution)} is not supported, expected two equal multiples of "
            f"{_PATCH}"
        )
    for key in ("paligemma_variant", "action_expert_variant"):
        if values[key] not in _VARIANTS:
            raise CompileError(f"config.json: {key}={values[key]!r} is not supported, expected {', '.join(_VARIANTS)}")
    features = raw.get("input_features") or {}
    if not isinstance(features, Mapping):
        raise CompileError(f"config.json: input_features must be an object, got {features!r:.80}")
    images = {
        name
        for name, feature in features.items()
        if isinstance(feature, Mapping) and str(feature.get("type")).upper() == "VISUAL"
    }
    images |= {f"observation.images.empty_camera_{number}" for number in range(values["empty_cameras"])}
    return Policy(values=values, views=len(images) or _VIEWS, store=store)
