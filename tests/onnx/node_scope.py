"""What of onnx.backend.test's node cases is out of scope, each with a reason."""

from __future__ import annotations

import re

import numpy as np

from tcim_lite.models.onnx.functions import WRITTEN_OUT
from tcim_lite.models.onnx.table import LOWERINGS

# Names of cases (a regular expression, matched whole) and why they cannot run.
OUT_OF_SCOPE: tuple[tuple[str, str], ...] = (
    (
        r"test_attention_4d_(((attn_mask_)?causal_bf16|causal_fp16|causal_padded_kv_bf16|gqa_with_past_and_present_fp16)(_expanded)?|padded_kv_bf16(_expanded)?)",
        "the expected result rounds what lies between to 16 bits",
    ),
    (
        r"test_isnan(_float16)?|test_isinf.*|test_mod_float_edge_cases.*|test_attention_4d_softcap_neginf_mask(_poison)?(_expanded)?",
        "an input with infinities, which the runtime refuses",
    ),
    (r"test_dft_inverse(_opset19)?", "sums of ten numbers that must be 0 within 1e-7"),
    (r"test_pow_types_int(32|64)_.*", "a power of integers whose exponent the network computes"),
    (r"test_dynamicquantizelinear_.*expanded", "scales that the network computes"),
    (r"test_quantizelinear_blocked.*", "scales of blocks"),
    (r"test_batchnorm_.*_training_mode", "training"),
    (r"test_training_dropout.*", "training"),
    (
        r"test_resize_downsample_scales_(linear|cubic)_align_corners",
        "the length of a result before it is made a whole number, which onnxruntime and PyTorch do not take",
    ),
)
_KNOWN = {
    "float16", "float32", "float64", "bfloat16", "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64",
}  # fmt: skip


def reason_of(case) -> str | None:
    """Why a case is out of scope, or None. An op without a lowering is in scope after all if it can be folded."""
    values = [value for inputs, outputs in case.data_sets for value in (*inputs, *outputs)]
    if any(not isinstance(value, (np.ndarray, np.generic)) for value in values):
        return "sequences, optionals and values that are no arrays"
    for pattern, reason in OUT_OF_SCOPE:
        if re.fullmatch(pattern, case.name):
            return reason
    nodes = [node for node in case.model.graph.node if node.op_type != "Constant"]
    unknown = sorted({n.op_type for n in nodes if (n.domain, n.op_type) not in LOWERINGS} - set(WRITTEN_OUT))
    if unknown:
        return f"no lowering of {', '.join(unknown)}"
    kinds = sorted({np.asarray(value).dtype.name for value in values} - _KNOWN)
    if kinds:
        return "element types other than floating point, bool and integers of 8 to 64 bits"
    if any(0 in np.shape(value) for inputs, outputs in case.data_sets for value in (*inputs[:1], *outputs)):
        return "empty tensors"
    return None
