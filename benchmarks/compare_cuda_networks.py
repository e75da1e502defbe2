"""ResNet-50 on this GPU: this project's packages and PyTorch's compiled float16, in turn.

    python benchmarks/compare_cuda_networks.py --work-dir DIR [--batch 32] [--quants float16 w8a8h1_sefp]

The network is written here in plain torch, with random weights and the batch statistics of random images, and exported
to ONNX. PyTorch runs it in float16, channels last, through torch.compile with CUDA graphs. A time is one run from the
call to the end on the device, inputs and outputs on the GPU: the median of several, both sides in turn in one process.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

os.environ["TCIM_LITE_DEVICE"] = "cuda"

import numpy as np
import torch
from torch import nn

import tcim_lite.runtime as tcim
from tcim_lite.models.onnx import OnnxOptions, compile_onnx


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.short = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride != 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.path(x) + self.short(x))


def resnet50() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def seconds_of(run, runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work-dir", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--quants", nargs="+", default=["float16", "w8a8h1_sefp"])
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile")
    parser.add_argument("--no-torch", action="store_true", help="do not time PyTorch")
    args = parser.parse_args()
    args.work_dir.mkdir(parents=True, exist_ok=True)

    model = resnet50().cuda()
    images = torch.randn(args.batch, 3, 224, 224, device="cuda")
    with torch.no_grad():
        for _ in range(20):
            model(images)  # statistics
        model.eval()
        wanted = model(images).cpu().numpy()
    file = args.work_dir / "resnet50.onnx"
    torch.onnx.export(model.cpu(), images.cpu(), str(file), input_names=["images"], output_names=["logits"],
                      opset_version=17, dynamo=False)  # fmt: skip
    sides = {}
    results = {}
    for quant in args.quants:
        folder = args.work_dir / f"resnet50-{quant}"
        compile_onnx(OnnxOptions(model=file, output=folder, quant=quant))
        module = tcim.load(str(folder / "resnet50.hmm"))
        module.set_input("images", images.cpu().numpy())
        sides[quant] = lambda module=module: module.run(sync=True)
        sides[quant]()
        results[quant] = module.get_output("logits").numpy().astype(np.float32)
    if not args.no_torch:
        half = model.half().cuda().to(memory_format=torch.channels_last)
        compiled = torch.compile(half, mode=args.mode)
        given = images.half().to(memory_format=torch.channels_last)

        def run_torch() -> torch.Tensor:
            with torch.no_grad():
                y = compiled(given)
            torch.cuda.synchronize()
            return y

        for _ in range(5):
            results["torch"] = run_torch().float().cpu().numpy()
        sides["torch"] = run_torch
    for run in sides.values():
        seconds_of(run, 20)
    found: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(5):
        for side, run in sides.items():
            found[side].append(seconds_of(run, 40))
    for side, times in found.items():
        ms = 1e3 * statistics.median(times)
        off = np.linalg.norm(results[side] - wanted) / np.linalg.norm(wanted)
        print(json.dumps({
            "side": side, "batch": args.batch, "ms": round(ms, 3), "least": round(1e3 * min(times), 3),
            "most": round(1e3 * max(times), 3), "images_s": round(args.batch / ms * 1e3),
            "of_torch": round(ms / 1e3 / statistics.median(found["torch"]), 3) if "torch" in found else None,
            "off_float32": round(float(off), 5),
        }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
