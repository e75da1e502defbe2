"""Vision towers on the GPU against the CPU: images of one size, windows by index and by a mask, gears with padding.

    python tests/cuda/check_towers.py FOLDER

Sizes are those of released towers but for the number of layers; weights are random. Limits are those of
check_networks.py.
"""

import argparse
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
import check_networks

import tcim_lite.runtime as tcim
from tcim_lite.llm.vision import VisionTower
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES

SIZES = {
    "qwen3_vl": {"hidden_size": 1152, "num_heads": 16, "intermediate_size": 4304, "patch_size": 16},
    "qwen2_5_vl": {"hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "patch_size": 14},
    "glm_ocr": {"hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096, "patch_size": 14},
    "qwen2_vl": {"embed_dim": 1280, "num_heads": 16, "mlp_ratio": 4, "patch_size": 14},
    "paddleocr_vl": {"hidden_size": 1152, "num_attention_heads": 16, "intermediate_size": 4304, "patch_size": 14},
    "qwen3_5": {"hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096, "patch_size": 16},
}
# What is compiled, and the image that is seen: windows of four sizes; a gear that is not full.
CASES = [
    ("qwen3_vl", {"vision": "224x160"}, (224, 160)),
    ("qwen2_5_vl", {"vision": "252x308"}, (252, 308)),
    ("qwen2_5_vl", {"vision": "252x308", "vision_mask": True}, (252, 308)),
    ("qwen2_vl", {"vision": "140x392"}, (140, 392)),
    ("glm_ocr", {"vision": "140x392"}, (140, 392)),
    ("paddleocr_vl", {"vision": "224x168"}, (224, 168)),
    ("qwen3_5", {"vision": "96,196"}, (256, 320)),
    ("qwen3_5", {"vision": "224x160"}, (224, 160)),
]


def tower_on(kind: str, device: int, folder: Path) -> VisionTower:
    os.environ["TCIM_LITE_DEVICE"] = kind
    return VisionTower(folder, "tower", tcim.WeightManager(tcim.DevManager([device], "Xh2HalBackend")))


def check(folder: Path, family: str, options: dict, size: tuple[int, int], quant: str) -> bool:
    record = FAMILIES[family]
    vision = record.vision.tiny | SIZES[family] | ({"window_size": 112} if family == "qwen2_5_vl" else {})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**record.tiny_config, "vision_config": vision}))
    language = {"prefill_length": 8, "context_length": 32, "random_weights": True, "name": "tower"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_checkpoint(CompileOptions(checkpoint=folder, output=folder, vision_quant=quant, **language, **options))
    pixels = np.random.default_rng(3).uniform(-1, 1, (3, *size)).astype(np.float16)
    cpu, gpu = (tower_on(kind, device, folder).see(pixels) for kind, device in (("cpu", 1), ("cuda", 0)))
    return check_networks.agree(f"{family} {options}", quant, list(cpu), list(gpu))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    good = [
        check(args.folder / f"tower-{index}-{quant}", family, options, size, quant)
        for index, (family, options, size) in enumerate(CASES)
        for quant in check_networks.LIMITS
    ]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
