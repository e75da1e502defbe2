"""What to compile, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from tcim_lite.hmm.layout import MAX_DEVICES

from ..common.errors import CompileError
from ..common.profiles import DEFAULT_ACTIVATIONS, QUANTS, profile_for

_MAX_LENGTH, _MAX_BATCH = 1 << 20, 1 << 10  # every slot has inputs of its own: a graph for more would not fit a file
_MAX_STAGES = 1 << 10
DEFAULT_CONTEXT = 2048
_TYPES: dict[str, type] = {"Path": Path, "str": str, "int": int, "bool": bool, "None": type(None)}
# What every model may be asked for.
COMMON_OPTIONS = frozenset(
    {"checkpoint", "output", "name", "quant", "head_quant", "activations", "random_weights", "seed", "self_contained"}
)
_VERIFY_LENGTH = 5  # what the vendor's speculative example compiles


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """What to compile.

    Attributes:
        checkpoint: Hugging Face folder; with `random_weights` a `config.json` does as well.
        output: Package folder; made if missing, files of the same name are replaced.
        name: Prefix of the package's files; None for the checkpoint's `model_type`.
        prefill_length: Tokens in a prefill chunk (the vendor's `fill-length`).
        context_length: Rows of the KV caches; None for 2048, or the most that the model can have where that is less.
        batch: Slots of the decode graph.
        all_logits: Prefill returns the logits of every row instead of the last one's.
        argmax: Decode also returns the id of each slot's largest logit, int32 [B, 1, 1], and that logit.
        hidden_states: Graphs return hidden states, [1, 1, H] where that of logits is [1, 1, V], and have no head. A
            number counts as in `hidden_states` of transformers: -1 is what the final norm gives, as the vendor's
            language model of CosyVoice3 returns it; -2 what the last layer would read, as its text encoder of Z-Image
            does, and so on. None for logits.
        position_ids: Every graph takes the positions of its tokens as input 3, int32 [1, P | 1], as the vendor's Llama
            exports do; only with a batch of one.
        masks: Every graph takes two attention masks for each slot after its lengths, as the vendor's gpt-oss graphs do;
            the draft's go by the lengths. Only for families with such inputs, and without `position_ids`.
        verify_length: Also write a verify graph of so many tokens, which returns all their logits; None for none, or
            where a draft asks for one, for the vendor's 5.
        pipeline: Also write prefill and decode in so many stages; 1 for none.
        ndevice: Also write every whole graph for so many devices that run it together; 1 for none.
        single_device: Write the graphs for one device; False only with `ndevice`.
        quant: Profile, one of `profiles.QUANTS`.
        head_quant: Profile of the head, or None for the one that goes with `quant`.
        activations: How quantised Linears round what they read: "a8", or "hidden_exponent" for the vendor's block
            format. The draft's are the same.
        audio_frames: Frames that the encoder of Qwen3-ASR, GLM-ASR or Fun-Audio-Chat takes, a hundred for each second;
            None for 30 s, of the last 8 s.
        random_weights: Draw the weights instead of reading them.
        seed: For `random_weights`.
        self_contained: Put the weights into every `.hmm` file instead of one `.hmw`.
        mtp: Write the graphs of the vendor's speculative decoding with the checkpoint's multi-token prediction layer:
            prefill with hidden states, a decode graph that verifies `verify_length` tokens, and prefill and decode of
            the layer, `<name>_prefill_mtp` and `<name>_decode_mtp`.
        split_conv: Columns of the convolution in linear attention are inputs and outputs for q, k and v each, as the
            vendor's exporter splits them by default.
        recurrent_in_place: Prefill updates the states of linear attention where they are and returns none, as the
            vendor's fused scan does; decode returns them.
        draft: Checkpoint of a draft model for speculative decoding, also written, as `<name>_prefill_draft` and so on.
            Either of the two options below asks for a draft as well, by default from `checkpoint` itself.
        draft_quant: Its profile, or None for `quant` and `head_quant`.
        draft_layers: How many of its blocks to use, from the first on; None for all.
        lora: Folder of a PEFT adapter: its matrices are inputs of the graphs, and files beside them; None for none.
        vision: Also write graphs of the vision tower: "448x448", height and width of its images, or "96,384", tokens of
            its gears, or "1536", patches of an image, by family; "default" for what the vendor compiles; None for none.
        vision_quant: Profile of the tower; None for `quant` where that is float, else w8a8h1_sefp.
        vision_mask: The tower takes a mask of its windows.

    Raises:
        CompileError: A value that cannot be.
    """

    checkpoint: Path
    output: Path
    name: str | None = None
    prefill_length: int = 256
    context_length: int | None = None
    batch: int = 1
    all_logits: bool = False
    argmax: bool = False
    hidden_states: int | None = None
    position_ids: bool = False
    masks: bool = False
    verify_length: int | None = None
    pipeline: int = 1
    ndevice: int = 1
    single_device: bool = True
    quant: str = "w4a8h0_ssfp"
    head_quant: str | None = None
    activations: str = DEFAULT_ACTIVATIONS
    audio_frames: int | None = None
    random_weights: bool = False
    seed: int = 0
    self_contained: bool = False
    mtp: bool = False
    split_conv: bool = False
    recurrent_in_place: bool = False
    draft: Path | None = None
    draft_quant: str | None = None
    draft_layers: int | None = None
    lora: Path | None = None
    vision: str | None = None
    vision_quant: str | None = None
    vision_mask: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        self._check_range("prefill_length", _MAX_LENGTH)
        if self.context_length is not None:
            self._check_range("context_length", _MAX_LENGTH)
        self._check_range("batch", _MAX_BATCH)
        self._check_range("pipeline", _MAX_STAGES)
        self._check_range("ndevice", MAX_DEVICES)
        if not self.single_device and self.ndevice == 1:
            raise CompileError("--no-single-device leaves no graph; give --ndevice 2 or more")
        if self.position_ids and self.batch > 1:
            raise CompileError(
                f"--position-ids with --batch {self.batch}: the vendor has no graph of several slots with positions; "
                "leave one of the two out"
            )
        if self.position_ids and self.masks:
            raise CompileError("--position-ids and --masks: no graph of the vendor has both; leave one of the two out")
        if self.mtp and self.has_draft:
            raise CompileError(
                "--mtp with --draft, --draft-quant or --draft-layers: the MTP layer is the draft; leave one of both out"
            )
        if self.hidden_states is not None and (self.argmax or self.mtp or self.has_draft):
            raise CompileError(
                "--hidden-states with --argmax, --mtp, --draft, --draft-quant or --draft-layers: these need logits; "
                "leave one of both out"
            )
        if self.hidden_states is not None and self.hidden_states >= 0:
            raise CompileError(
                f"--hidden-states must be -1, what the final norm gives, or less (-2: what the last layer would read), "
                f"got {self.hidden_states}"
            )
        if self.audio_frames is not None:
            self._check_range("audio_frames", _MAX_LENGTH)
        if self.verify_length is not None:
            self._check_range("verify_length", _MAX_LENGTH)
        name = self.name
        if name is not None and (not name or name != Path(name).name or name.startswith(".") or "\\" in name):
            raise CompileError(f"--name must be a plain file name, got {self.name!r}")
        if self.seed < 0:
            raise CompileError(f"--seed must not be negative, got {self.seed}")
        if self.seed and not self.random_weights:
            raise CompileError(
                f"--seed {self.seed}: it chooses what --random-weights draws, which is missing; give both or neither"
            )
        profile_for(self.quant, self.head_quant, self.activations)
        if self.draft_quant not in (None, *QUANTS):
            raise CompileError(f"unknown --draft-quant {self.draft_quant!r}; choose from {', '.join(QUANTS)}")
        if self.draft_quant is not None:
            profile_for(self.draft_quant, activations=self.activations)

    def check_lengths(self) -> None:
        """Of a language model; Whisper has a prefill of its own.

        Raises:
            CompileError: A graph would take more tokens than the caches hold.
        """
        for flag, length in (("--prefill-length", self.prefill_length), ("--verify-length", self.verify_tokens or 0)):
            if length > self.context:
                raise CompileError(
                    f"{flag} {length} is greater than --context-length {self.context}; give a smaller {flag}"
                )

    def refuse_others(self, known: Set[str], reason: str) -> None:
        """Refuses options that a model does not have.

        Args:
            known: Names of those that it has.
            reason: What the model has instead.

        Raises:
            CompileError: Another option has a value that is not its default.
        """
        for field in fields(self):
            if field.name in known or field.default is MISSING or getattr(self, field.name) == field.default:
                continue
            flag = "--no-single-device" if field.name == "single_device" else _flag(field.name)
            raise CompileError(f"{flag}: {reason}; leave it out")

    def refuse_these(self, names: Sequence[str], reason: str) -> None:
        """As `refuse_others`, but of these options alone."""
        self.refuse_others({field.name for field in fields(self)} - set(names), reason)

    @property
    def context(self) -> int:
        """Rows of the KV caches."""
        return DEFAULT_CONTEXT if self.context_length is None else self.context_length

    @property
    def has_draft(self) -> bool:
        """Whether a draft model is asked for."""
        return self.draft is not None or self.draft_quant is not None or self.draft_layers is not None

    @property
    def verify_tokens(self) -> int | None:
        """T of the verify graph, None for no such graph."""
        drafts = self.has_draft or self.mtp
        return _VERIFY_LENGTH if self.verify_length is None and drafts else self.verify_length

    def of_draft(self, target_name: str) -> CompileOptions:
        """Returns the options of the draft model: prefill and decode of one slot, with the same chunk and context.

        On several devices as the target, and on one: a draft is small, and host code may leave it on one device.

        Args:
            target_name: Prefix of the package's files.
        """
        return self.of_part(
            checkpoint=self.draft or self.checkpoint,
            name=target_name,
            ndevice=self.ndevice,
            position_ids=self.position_ids,
            quant=self.draft_quant or self.quant,
            head_quant=None if self.draft_quant else self.head_quant,
        )

    def of_part(self, **changes: Any) -> CompileOptions:
        """Returns the options of another language model of the package: prefill and decode of one slot, and no more.

        Args:
            changes: What it has otherwise.
        """
        kept = {name: getattr(self, name) for name in COMMON_OPTIONS | {"prefill_length"}}
        return CompileOptions(**kept | {"context_length": self.context} | changes)

    def _check_types(self) -> None:
        for field in fields(self):
            value, kinds = getattr(self, field.name), str(field.type).split(" | ")
            fits = isinstance(value, tuple(_TYPES[kind] for kind in kinds))
            if not fits or (isinstance(value, bool) and "bool" not in kinds):  # True is an int to Python
                raise CompileError(f"{_flag(field.name)} must be {' or '.join(kinds)}, got {value!r:.80}")

    def _check_range(self, option: str, most: int) -> None:
        value = getattr(self, option)
        if not 1 <= value <= most:
            raise CompileError(f"{_flag(option)} must be 1 to {most}, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileResult:
    """What was written: paths relative to `output`."""

    output: Path
    files: tuple[Path, ...]


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
