"""The models that cases run, by role. Another runtime is given models that its own compiler made of the same graphs."""

from __future__ import annotations

import json
from pathlib import Path

from .checks import NotRunError
from .small_file import read_small_file

SHIPPED = Path(__file__).parent / "models"
MANIFEST = "models.json"

_ATTENTION = (
    "attention of input_1, float16 [1, {0}, 128], with itself over model_layers_0_self_attn_{{k,v}}cache_input, "
    "float16 [1, 2, 32, 64]; valid_length, current_length int32 [1]; output logits, float16 [1, {0}, 128]; no weights"
)
_CURRENT = "current_length int32 [1] is the number of real rows"
_HEADS = (
    "attention of input_1, float16 [1, {0}, 192], with itself over caches of three heads, float16 [1, 3, 32, 64], "
    "else like attention_prefill; {1}"
)
ROLES = {
    "add": "total = a + b, float16 [2, 3]; inputs image int8 [4] and length int32 [1], which nothing reads; two cores; "
    'custom_msg {"kind": "add"}',
    "add_4x5": "the same, float32 [4, 5]",
    "add_wide": "the same, float32 [1, 256, 64]",
    "add_slow": "the same, float32 [1, 256, 4096]",
    "linear": "y = x w, x float32 [1, 4, 8], w [16, 8] = 0/16, 1/16, ..., y [1, 4, 16]; contains its weights",
    "linear_prefill": "the same; the weights are in a file shared with linear_decode where the format knows such files",
    "linear_decode": "the same for x [1, 1, 8]",
    "norm": "y = RMSNorm of x, float16 [1, 4, 64], epsilon 2^-20, weight (i - 20) / 8; " + _CURRENT,
    "silu_mul": "y = silu(gate) * up, float16 [1, 4, 32]; x [1, 4, 64] has 16 columns of gate, 16 of up, and so again",
    "experts": "y = sum of two of eight experts, float16 [1, 4, 32]: of the largest logits, float16 [1, 4, 8], by "
    "their softmax, divided by its sum over the two; expert e gives (e + 1) x[..., :32], x float16 [1, 4, 64]",
    "rope": "y = x, float16 [1, 4, 2, 32], with columns i and i + 16 of a head rotated by valid_length + row times "
    "10000^(-i/16); cos and sin rounded to float16",
    "rope_positions": "the same, each row by its value in position_ids, int32 [1, 4], not by valid_length + row",
    "linear_w4": "y = x w, x float16 [1, 4, 128], w[n, k] = ((7 n + 3 k) mod 16 - 8) / 32, n < 32, quantised to 4 bits "
    "per 64 and x to 8; " + _CURRENT,
    "linear_w8": "the same with w[n, k] = ((37 n + 11 k) mod 255 - 127) / 128, quantised to 8 bits per 64; " + _CURRENT,
    "linear_f16": "the same w as linear_w8, nothing quantised; " + _CURRENT,
    "attention_prefill": _ATTENTION.format(4),
    "attention_decode": _ATTENTION.format(1),
    "attention_verify": _ATTENTION.format(3),
    "attention_long": "the same as attention_prefill for eight rows at a time over caches [1, 2, 600, 64]",
    "attention_window": "the same as attention_prefill, where a row sees itself and the four before it",
    "attention_window_decode": "the same for one row at a time",
    "attention_sinks": "the same as attention_prefill, where the softmax of the two heads has one more score without a "
    "value, 0.5 and -1",
    "attention_sinks_decode": "the same for one row at a time",
    "attention_mask": "the same as attention_prefill, where input 3, float16 [1, 1, 4, 32], is added to the scores and "
    "alone says what a row sees; -65504 hides a row of the cache",
    "attention_mask_decode": "the same for one row at a time, [1, 1, 1, 32]",
    "attention_mask_window": "the same with float16 [1, 1, 4, 16], of the rows from max(valid_length - 4, 0) on",
    "attention_mask_window_decode": "the same for one row at a time, [1, 1, 1, 16]",
    "heads": _HEADS.format(4, "for one device"),
    "heads_2_1": _HEADS.format(4, "for two devices, two heads on the first"),
    "heads_1_2": _HEADS.format(4, "for two devices, one head on the first"),
    "heads_1_1_1": _HEADS.format(4, "for three devices"),
    "heads_decode_2_1": _HEADS.format(1, "for two devices, two heads on the first"),
    "llm_prefill": "a Qwen3 of two layers, compiled for prefill; any other plain LLM does as well",
    "llm_decode": "the same, compiled for decode with the same context length",
    "llm_verify": "the same, compiled for verifying: it returns the logits of every row",
    "llm_decode_batch": "the same as llm_decode for three slots",
    "llm_embedding": "not a model: its embedding table, raw float16 rows",
}


class Models:
    """A folder with models.json, which maps roles to file names in it; a role that is missing is not run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        manifest = self.folder / MANIFEST
        try:
            entries = json.loads(read_small_file(manifest))
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{manifest}: expected a JSON object of role: file name ({error})") from None
        unknown = sorted(set(entries) - set(ROLES)) if isinstance(entries, dict) else ["not an object"]
        if unknown:
            raise ValueError(f"{manifest}: unknown roles {', '.join(unknown)}; the roles are {', '.join(ROLES)}")
        missing = sorted(name for name in entries.values() if not (self.folder / name).is_file())
        if missing:
            raise ValueError(f"{manifest}: {', '.join(missing)} not found in {self.folder}")
        self._entries: dict[str, str] = entries

    def has(self, role: str) -> bool:
        """Whether there is a file for the role."""
        return role in self._entries

    def path(self, role: str) -> Path:
        """The file of a role.

        Raises:
            NotRunError: the folder has none.
        """
        if role not in ROLES:
            raise KeyError(role)
        if role not in self._entries:
            raise NotRunError(f"no model for the role {role!r} in {self.folder}")
        return self.folder / self._entries[role]
