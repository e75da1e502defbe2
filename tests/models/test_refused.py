"""Options, towers and encoders that a family's graphs cannot have are refused by name before anything is written.

What is wrong in a family's own config.json: test_families.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_sounds

from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES

SOUNDS = {"gemma4": tiny_sounds.GEMMA4, "glmasr": tiny_sounds.GLM_ASR, "qwen3_asr": tiny_sounds.QWEN3}
PATCHES = {"context_length": 256, "vision": "default"}
AXES = [name for name, record in FAMILIES.items() if record.contract.axes and not record.contract.carried]
KEYED = ("falcon_mamba", "jamba", "kimi_linear", "mamba")  # whose keys decay each by itself
# Family, changes to its tiny config, options, message. Objects change what they are in the tiny tower or encoder.
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    *((name, {}, {"batch": 2}, "--batch 2: the vendor has no graph of several slots with posi.*time") for name in AXES),
    *((name, {}, {"position_ids": True}, "always take positions, along time, height and width") for name in AXES),
    *((name, {}, {"masks": True}, "have no mask inputs") for name in AXES),
    ("qwen3", {}, {"masks": True}, "--masks: the vendor's graphs of Qwen3 dense have no mask inputs"),
    ("qwen3", {}, {"masks": True, "position_ids": True}, "--position-ids and --masks"),
    ("qwen3", {}, {"batch": 2, "position_ids": True}, "--position-ids with --batch 2"),
    ("qwen3", {}, {"split_conv": True}, "Qwen3 dense has no layers with linear attention"),
    ("qwen3", {}, {"recurrent_in_place": True}, "Qwen3 dense has no layers with linear attention"),
    ("qwen3", {}, {"mtp": True}, "--mtp: of Qwen3 .* no layer of multi-token prediction"),
    ("qwen3", {}, {"audio_frames": 200}, "--audio-frames is for Gemma 4, GLM-ASR and Qwen3-ASR"),
    ("qwen3", {}, {"prefill_length": 65}, "is greater than --context-length 64; give a smaller --prefill-length"),
    ("qwen3", {}, {"prefill_length": 0}, "--prefill-length must be 1 to"),
    ("qwen3", {}, {"context_length": -1}, "--context-length must be 1 to"),
    ("qwen3", {}, {"batch": 0}, "--batch must be 1 to"),
    ("qwen3", {}, {"pipeline": 0}, "--pipeline must be 1 to"),
    ("qwen3", {}, {"verify_length": 0}, "--verify-length must be 1 to"),
    ("qwen3", {}, {"verify_length": 65}, "--verify-length 65 is greater than --context-length 64"),
    ("qwen3", {}, {"quant": "w3"}, "unknown --quant 'w3'; choose from w4a8h0_ssfp"),
    ("qwen3", {}, {"head_quant": "w3"}, "unknown --head-quant 'w3'"),
    ("qwen3", {}, {"head_quant": "float32"}, "--head-quant float32 does not fit --quant w4a8h0_ssfp"),
    ("qwen3", {}, {"name": "a/b"}, "--name must be a plain file name"),
    ("qwen3", {}, {"seed": -1}, "--seed must not be negative"),
    ("qwen3", {}, {"seed": 3, "random_weights": False}, "--seed 3: it chooses what --random-weights draws, which is m"),
    ("qwen3", {}, {"ndevice": 3}, "--ndevice 3 does not divide the model's 2 KV heads"),
    ("qwen3", {"num_key_value_heads": 3}, {"ndevice": 2}, "--ndevice 2 does not divide the model's 3 KV heads"),
    (
        "qwen3", {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 8}, {"ndevice": 8},
        "--ndevice 8 leaves a device without outputs: hidden_size=64 are 4 blocks of 16",
    ),
    ("qwen3", {"vocab_size": 16}, {"ndevice": 2}, "vocab_size=16 are 1 blocks of 16"),
    ("qwen3", {}, {"ndevice": 0}, "--ndevice must be 1 to 32"),
    ("qwen3", {}, {"ndevice": 33}, "--ndevice must be 1 to 32"),
    ("qwen3", {}, {"single_device": False}, "--no-single-device leaves no graph"),
    ("qwen3", {}, {"draft_layers": 3}, "--draft-layers must be 1 to 2, the blocks in .*, got 3"),
    ("qwen3", {}, {"draft_layers": 0}, "--draft-layers must be 1 to 2"),
    ("qwen3", {}, {"draft_quant": "w3"}, "unknown --draft-quant 'w3'; choose from w4a8h0_ssfp"),
    ("qwen3", {}, {"draft_layers": 1, "prefill_length": 4, "context_length": 4}, "--verify-length 5 is greater than"),
    ("qwen3", {}, {"draft": Path("nowhere")}, "nowhere does not exist; expected"),
    ("gemma3n", {}, {"batch": 2}, "--batch 2: .* per-layer inputs"),
    ("gemma3n", {}, {"pipeline": 2}, "--pipeline 2: layers of this Gemma 3n share caches or take inputs of their own"),
    ("gemma3n", {"num_kv_shared_layers": 0}, {"ndevice": 2}, "--ndevice 2: layers of this Gemma 3n differ in"),
    ("gemma3n", {}, {"draft_layers": 1}, "--draft: layers of .* take inputs of their own"),
    ("gemma3n", {}, {"hidden_states": -2}, "--hidden-states -2: layers of Gemma 3n hand on several hidden states"),
    *((name, {}, {"ndevice": 2}, "--ndevice 2: layers with states of .* are for one device") for name in KEYED),
    ("mamba2", {"n_groups": 1}, {"ndevice": 2}, "--ndevice 2 does not divide the 1 groups of state-space layers"),
    ("mamba", {}, {"verify_length": 4}, "--verify-length 4: Mamba has layers with linear attention"),
    ("mamba", {}, {"split_conv": True}, "--split-conv: convolutions of Mamba are not over q, k and v"),
    ("mamba", {}, {"pipeline": 3}, "--pipeline 3 is more stages than the model's 2 blocks"),
    ("jamba", {"attn_layer_period": 4}, {"pipeline": 2}, "stage 1, layers 2 to 3, would have linear attention"),
    ("qwen3_5", {}, {"mtp": True, "draft_layers": 1}, "the MTP layer is the draft"),
    ("qwen3_5", {}, {"mtp": True, "verify_length": 100}, "--verify-length 100 is greater"),
    ("qwen3_5", {}, {"verify_length": 4}, "--verify-length 4: "),
    ("qwen3_5", {}, {"draft_layers": 1}, "a draft: "),
    ("qwen3_5", {}, {"position_ids": True}, "--position-ids"),
    ("qwen3_5", {}, {"pipeline": 2}, "--pipeline 2: stage 0, layers 0 to 1, would have linear attention"),
    (
        "qwen3_5", {"linear_num_key_heads": 1, "linear_num_value_heads": 2}, {"ndevice": 2},
        "--ndevice 2 does not divide the 1 key heads of linear attention",
    ),
    ("qwen3_5", {"layer_types": ["full_attention"]}, {}, "layer_types must name 4 layers"),
    ("qwen3_5", {"layer_types": ["sliding_attention"] * 4}, {}, "layer_types must name 4 layers"),
    ("qwen3_5", {"layer_types": ["linear_attention"] * 4}, {}, "none of the 4 layers has full_attention"),
    ("qwen3_5", {"full_attention_interval": 5}, {}, "none of the 4 layers has full_attention"),
    ("qwen3_5", {"linear_num_key_heads": 3}, {}, "linear_num_value_heads=4 is not a multiple of .*_heads=3"),
    ("qwen3_5", {"linear_num_key_heads": 8}, {}, "linear_num_value_heads=4 is not a multiple"),
    ("qwen3_next", {}, {"position_ids": True}, "--position-ids: Qwen3-Next has layers with linear attention"),
    ("lfm2", {}, {"verify_length": 4}, "--verify-length 4: LFM2 has layers with linear attention or convolutions"),
    ("lfm2", {}, {"split_conv": True}, "--split-conv: states of LFM2 are columns of one convolution"),
    ("lfm2", {}, {"recurrent_in_place": True}, "--recurrent-in-place: states of LFM2"),
    ("lfm2_moe", {}, {"pipeline": 4}, "--pipeline 4: stage 0, layers 0 to 0, would have linear attention or conv"),
    ("lfm2", {}, {"mtp": True}, "--mtp: of LFM2 no layer of multi-token prediction"),
    ("qwen3", {}, {"hidden_states": -3}, "has 2 layers, .*give -2 or more"),
    ("qwen3", {}, {"hidden_states": 0}, r"--hidden-states must be -1, .*got 0"),
    *(
        ("qwen2", {}, {"hidden_states": -1, **other}, "--hidden-states with --argmax, --mtp, --draft")
        for other in ({"argmax": True}, {"mtp": True}, {"draft_layers": 1})
    ),
    ("gemma3", {}, {"hidden_states": -2}, "keep hidden states at .* give -1"),
    # Towers of a grid.
    ("qwen3_vl", {}, {"vision": "448"}, "--vision 448: expected height x width"),
    ("qwen3_vl", {}, {"vision": "40x64"}, "--vision 40x64: both sides must be multiples of 16, the side of a token"),
    ("qwen3_vl", {}, {"vision": "0x16"}, "both sides must be multiples of 16"),
    ("qwen3_vl", {}, {"vision": "9600x9600"}, "makes 1440000 patches, expected 1 to 65536"),
    ("qwen3_vl", {}, {**PATCHES, "vision_mask": True}, "--vision-mask: the graphs of this tower take no mask of wind"),
    ("qwen3_vl", {}, {**PATCHES, "vision_quant": "w4a8h0_ssfp"}, "choose from w8a8h1_sefp, float16, float32"),
    ("qwen3_vl", {}, {"vision_mask": True}, "--vision-mask is for the graph of a vision tower; give --vision as well"),
    ("qwen3_vl", {}, {"vision_quant": "float16"}, "--vision-quant is for the graph of a vision tower"),
    ("qwen3_vl", {"vision_config": None}, PATCHES, "config.json has no vision_config"),
    ("qwen3_vl", {"vision_config": 3}, PATCHES, "vision_config must be an object, got 3"),
    ("qwen3_vl", {"vision_config": {"depth": None}}, PATCHES, "depth"),
    (
        "qwen3_vl", {"vision_config": {"hidden_act": "gelu"}}, PATCHES,
        "hidden_act='gelu' is not supported; the vision tower of Qwen3-VL dense",
    ),
    ("qwen3_vl", {"vision_config": {"in_channels": 1}}, PATCHES, "in_channels=1 is not supported"),
    (
        "qwen3_vl", {"vision_config": {"num_heads": 3}}, PATCHES,
        "makes heads of 21.3333 with num_heads=3, expected a multiple of 4",
    ),
    (
        "qwen3_vl", {"vision_config": {"out_hidden_size": 64}}, PATCHES,
        "out_hidden_size=64, but the language model's hidden_size is 192",
    ),
    (
        "qwen3_vl", {"vision_config": {"num_position_embeddings": 65}}, PATCHES,
        "num_position_embeddings=65 is no square",
    ),
    *(
        ("qwen3_vl", {"vision_config": {"deepstack_visual_indexes": layers}}, PATCHES, message)
        for layers, message in (
            ([0, 2, 1], r"must name layers in order, got \[0, 2, 1\]"),
            ([0, 1, 4], "deepstack_visual_indexes names layer 4, of 4"),
            ([0, 1], "names 2 layers, but 3 layers of the language model"),
        )
    ),
    (
        "qwen3_vl", {"vision_config": {"rope_parameters": [1]}}, PATCHES,
        r"rope_parameters must be an object, got \[1\]",
    ),
    (
        "qwen2_5_vl", {"vision_config": {"fullatt_block_indexes": [-1]}}, PATCHES,
        "fullatt_block_indexes must be a list of layers",
    ),
    (
        "paddleocr_vl", {"vision_config": {"layer_norm_eps": 1e-5}}, PATCHES,
        "layer_norm_eps=1e-05 is not supported; the vision tower of Paddle",
    ),
    (
        "paddleocr_vl", {"vision_config": {"image_size": 5}}, PATCHES,
        "num_position_embeddings must be a positive integer, got 0",
    ),
    ("qwen3", {}, PATCHES, "--vision: Qwen3 dense has no vision tower"),
    ("qwen3_5", {}, {"vision": "4 by 4"}, "give their numbers, such as --vision 96,196"),
    ("qwen3_5", {}, {"vision": "0"}, "makes 0 patches"),
    ("qwen3_5", {}, {"vision": "4x4x4"}, "expected height x width of the images in pixels"),
    ("qwen3_5", {}, {"vision": "445x448"}, "both sides must be multiples of 16"),
    # Strips.
    ("minicpmv4_6", {"insert_layer_id": 3}, PATCHES, "insert_layer_id=3 must be a layer of the vision tower, 0 to 2"),
    ("minicpmv4_6", {"insert_layer_id": -1}, PATCHES, "insert_layer_id must be the number of a layer, 0 for"),
    ("minicpmv4_6", {"merger_times": 2}, PATCHES, "merger_times=2 is not supported; the vision tower of MiniCPM-V 4"),
    (
        "minicpmv4_6", {"vision_config": {"window_kernel_size": [4, 4]}}, PATCHES,
        r"window_kernel_size=\[4, 4\] is not supported",
    ),
    ("minicpmv4_6", {"vision_config": {"hidden_act": "gelu"}}, PATCHES, "hidden_act='gelu' is not supported"),
    (
        "minicpmv4_6", {"vision_config": {"num_attention_heads": 3}}, PATCHES,
        "hidden_size=64 is not a multiple of num_attention_heads=3",
    ),
    ("minicpmv4_6", {"vision_config": {"image_size": 50}}, PATCHES, "image_size=50 is not a multiple of patch_size=6"),
    ("minicpmv4_6", {}, {"vision": "24"}, "--vision 24: the number of patches must be a multiple of 16"),
    ("minicpmv4_6", {}, {"vision": "448x448"}, "take any image of up to so many patches; give their number, such as"),
    ("minicpmv4_6", {}, {"vision": "0"}, "--vision 0 makes 0 patches"),
    ("minicpmv4_6", {}, {"vision": "16", "vision_mask": True}, "--vision-mask: the graphs of this tower take no mask"),
    ("minicpmv", {}, {"vision": "16384"}, "--vision 16384 makes 98304 patches, expected 1 to 65536"),
    (
        "minicpmv", {"hidden_size": 192}, PATCHES,
        "hidden_size=192 is not a multiple of 128, the width of a head of the",
    ),
    ("minicpmv", {"drop_vision_last_layer": True}, PATCHES, "drop_vision_last_layer=True is not supported"),
    (
        "minicpmv", {"vision_config": None}, PATCHES,
        "config.json has no vision_config, so there is no vision tower; MiniCPM-V 4.5 models",
    ),
    # Pooled.
    ("gemma4", {"vision_config": {"num_key_value_heads": 1}}, PATCHES, "num_key_value_heads=1 is not supported"),
    ("gemma4", {"vision_config": {"head_dim": 30}}, PATCHES, "head_dim=30 must be a multiple of 4"),
    (
        "gemma4", {"vision_config": {"rope_parameters": {"rope_type": "linear"}}}, PATCHES,
        "must be those of axial RoPE",
    ),
    ("gemma4", {}, {**PATCHES, "vision": "448x0"}, "expected height x width of the images in pixels"),
    ("gemma4", {}, {**PATCHES, "vision": "8x400"}, "makes 2 x 118 patches, but the tower has 48 positions"),
    ("gemma4", {}, {**PATCHES, "vision": "96,96"}, "any image of up to so many tokens"),
    ("gemma4", {}, {**PATCHES, "vision": "0"}, "makes 0 patches"),
    # Sounds.
    ("gemma4", {"audio_config": {}}, {"audio_frames": 30}, "--audio-frames 30 is not a multiple of 4"),
    ("gemma4", {"audio_config": {"hidden_act": "gelu"}}, {"audio_frames": 124}, "hidden_act='gelu' is not supported"),
    (
        "gemma4", {"audio_config": {"gradient_clipping": 10.0}}, {"audio_frames": 124},
        "gradient_clipping=10 is not supported",
    ),
    (
        "gemma4", {"audio_config": {"attention_logit_cap": 65600}}, {"audio_frames": 124},
        "attention_logit_cap=65600 is not supported, expected 65504 or less",
    ),
    (
        "gemma4", {"audio_config": {"subsampling_conv_channels": [64, 8]}}, {"audio_frames": 124},
        "expected two, the first 128",
    ),
    (
        "gemma4", {"audio_config": {"num_attention_heads": 3}}, {"audio_frames": 124},
        "hidden_size=64 must be even, and a multiple of 3 heads",
    ),
    *(
        ("glmasr", {"audio_config": changes}, {"audio_frames": 400}, message)
        for changes, message in (
            ({"hidden_act": "relu"}, "hidden_act='relu' is not supported; the encoder of GLM-ASR"),
            ({"num_attention_heads": 3}, "hidden_size=64 is not a multiple of num_attention_heads=3"),
            ({"num_key_value_heads": 1}, "num_key_value_heads=1 must be num_attention_heads=2"),
            ({"intermediate_size": 100}, "intermediate_size=100 is not a multiple of hidden_size=64"),
            ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "rope_type='yarn' is not supported"),
        )
    ),
    ("glmasr", {"audio_config": {}}, {"audio_frames": 404}, "--audio-frames 404 is not a multiple of 8"),
    *(
        ("qwen3_asr", {"audio_config": changes}, {"audio_frames": 400}, message)
        for changes, message in (
            ({"activation_function": "relu"}, "activation_function='relu' is not supported; the encoder of Qwen3-ASR"),
            ({"output_dim": 96}, "output_dim=96, but the language model's hidden_size is 192"),
            ({"n_window_infer": 250}, "n_window_infer=250 is not a multiple of a chunk of 100"),
            ({"encoder_attention_heads": 3}, "d_model=128 must be even and a multiple of encoder_attention_heads=3"),
        )
    ),
    ("qwen3_asr", {"audio_config": {}}, {"audio_frames": 250}, "--audio-frames 250 is not a multiple of 100"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
@pytest.mark.parametrize(("family", "changes", "options", "message"), CASES)
def test_what_cannot_be_is_refused(tmp_path: Path, family: str, changes: Any, options: Any, message: str) -> None:
    record = FAMILIES[family]
    tower = {"vision_config": record.vision.tiny} if record.vision else {}
    objects = tower | ({"audio_config": SOUNDS[family]} if "audio_config" in changes else {})
    config = record.tiny_config | objects
    for key, value in changes.items():
        config[key] = {**objects[key], **value} if key in objects and isinstance(value, dict) else value
    (tmp_path / "config.json").write_text(json.dumps(config))
    sizes = {"random_weights": True, "prefill_length": 8, "context_length": 64}
    with pytest.raises(CompileError, match=message):
        compile_checkpoint(CompileOptions(checkpoint=tmp_path, output=tmp_path / "out", **{**sizes, **options}))
    assert not (tmp_path / "out").exists()
