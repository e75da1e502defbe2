"""Qwen3-TTS: a talker that speaks in codes, a predictor of each frame's other codes, and a projection of text.

The talker is a Qwen3 whose tokens are the first codes of frames. The code predictor is a smaller one with a head and an
embedding for each of the other codes of a frame. Positions of the talker along three axes are equal: one is enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ..blocks.specs import specs_of
from ..blocks.speech_layers import linear, linear_weights
from ..common.config_keys import Key, Only, read_keys
from ..common.config_rules import object_in
from ..common.errors import CompileError
from ..common.profiles import Profile
from ..contract import Port
from ..families import qwen3
from ..families.shared.dense import CONTRACT, hidden_per_head, tensors_below
from ..family import Tensors, plain
from ..graphs.speech_builder import SpeechBuilder
from ..model_config import ModelConfig
from ..sounds.tensors import pair_tensors, table_spec
from ..weights import roles
from ..weights import speech_roles as speech
from ..weights.spec import LinearSpec, VectorSpec

MODEL_TYPE, ARCHITECTURE = "qwen3_tts", "Qwen3TTSForConditionalGeneration"
TITLE = "Qwen3-TTS"
_TEXT = ("fc1", "fc2")
_FEWEST_GROUPS = 3  # of which the predictor has two heads

# Defaults are those of the published classes, except that the sizes of a model must be given.
_TEXT_KEYS: tuple[Key | Only, ...] = (
    Key("hidden_size"),
    Key("text_hidden_size", absent=2048),
    Key("text_vocab_size"),
    Key("num_code_groups"),
    Only("hidden_act", "silu"),
)
# transformers writes tie_word_embeddings, but no head here can be tied.
_QWEN3_KEYS = (
    *(key for key in qwen3.FAMILY.keys if key.name != "tie_word_embeddings"),
    Only("use_sliding_window", False),
)


TALKER = replace(
    qwen3.FAMILY,
    model_type=MODEL_TYPE,
    architecture=ARCHITECTURE,
    title=f"the talker of {TITLE}",
    keys=(*_QWEN3_KEYS, Key("head_dim", absent=hidden_per_head, null=hidden_per_head)),
    folded=lambda values: {"tie_word_embeddings": False},
    tensors=tensors_below("talker.", "model.codec_embedding.weight", "codec_head.weight"),
    contract=replace(CONTRACT, hidden="past_hidden"),
    gguf=None,
)

_PREDICTOR, _INPUT = "talker.code_predictor.", "talker.code_predictor.small_to_mtp_projection"
CODE_PREDICTOR = replace(
    TALKER,
    title=f"the code predictor of {TITLE}",
    keys=(*_QWEN3_KEYS, Key("num_code_groups")),
    folded=lambda values: {"tie_word_embeddings": False, "heads": values["num_code_groups"] - 1},
    tensors={
        **tensors_below(_PREDICTOR, "model.codec_embedding.{expert}.weight", "lm_head.{expert}.weight"),
        roles.INPUT_PROJECTION: plain(f"{_INPUT}.weight"),
        roles.INPUT_PROJECTION_BIAS: plain(f"{_INPUT}.bias"),
    },
    contract=replace(CONTRACT, head_number=Port("head_number", "generate_steps", "")),
)


def _talker_config(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return part_of(raw, "talker_config")


def part_of(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object of config.json, with what the file says of the checkpoint as a whole."""
    return {**object_in(raw, name), "quantization_config": raw.get("quantization_config")}


def read_talker(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the talker's keys of a parsed `config.json`.

    Raises:
        CompileError: A value that is missing, malformed or not supported.
    """
    return TALKER.read(_talker_config(raw))


def read_code_predictor(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the code predictor's keys of a parsed `config.json`; its input are rows of the talker's length.

    Raises:
        CompileError: A value that is missing, malformed or not supported, or that the talker contradicts.
    """
    talker = _talker_config(raw)
    config = CODE_PREDICTOR.read(part_of(talker, "code_predictor_config"))
    values = read_keys(_TEXT_KEYS, talker, TITLE)
    groups, width = values["num_code_groups"], values["hidden_size"]
    if groups != config.heads + 1 or groups < _FEWEST_GROUPS:
        raise CompileError(
            f"config.json: num_code_groups is {groups} in talker_config and {config.heads + 1} in its "
            f"code_predictor_config; expected one number, {_FEWEST_GROUPS} or more"
        )
    return replace(config, input_size=None if width == config.hidden_size else width)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextProjection:
    """Two Linears between an embedding of text tokens and rows of the talker.

    Attributes:
        width: Of an embedding.
        inner: Between the two.
        outputs: Of a row.
        rows: That the graph takes at a time.
        ports: Names of its input and its output.
    """

    width: int
    inner: int
    outputs: int
    rows: int = 1
    ports: tuple[str, str] = ("inputs_embeds", "outputs")

    def specs(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        tensors: dict[roles.Role, Tensors] = {}
        for pair, name in zip(speech.TEXT_PROJECTION, _TEXT, strict=True):
            tensors |= pair_tensors(pair, f"talker.text_projection.linear_{name}")
        first, second = speech.TEXT_PROJECTION
        weights = [*linear_weights(first, self.inner, self.width), *linear_weights(second, self.outputs, self.inner)]
        return specs_of(weights, tensors, profile, None)

    def constants(self, dtype: str) -> dict[str, NDArray[Any]]:
        return {}

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """Embeddings [1, rows, width] -> rows of the talker's input [1, rows, H]."""
        builder = SpeechBuilder("text_projection", profile.tensor_dtype, weights, profile.activations)
        first, second = speech.TEXT_PROJECTION
        source, result = self.ports
        x = builder.input(source, (1, self.rows, self.width))
        x = builder.function("Silu", "text_projection.act", linear(builder, "text_projection.inner", x, first))
        return builder.build({linear(builder, result, x, second): None})


def read_text_projection(raw: Mapping[str, Any]) -> TextProjection:
    """Reads the keys of the projection of text. The vendor's graph takes one token a run.

    Raises:
        CompileError: A value that is missing, malformed or not supported.
    """
    values = read_keys(_TEXT_KEYS, _talker_config(raw), TITLE)
    width = values["text_hidden_size"]
    return TextProjection(width=width, inner=width, outputs=values["hidden_size"])


def text_table(raw: Mapping[str, Any]) -> LinearSpec:
    """Returns the embedding of text tokens."""
    values = read_keys(_TEXT_KEYS, _talker_config(raw), TITLE)
    shape = (values["text_vocab_size"], values["text_hidden_size"])
    return table_spec(speech.TEXT_TOKENS, "talker.model.text_embedding.weight", shape)
