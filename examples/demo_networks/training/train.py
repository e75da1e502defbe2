"""Trains the detector from nothing, then the classifier from its layers; writes ONNX files and measures the tables.

One thread, fixed seeds: the same machine and versions write the same files.
"""

import argparse
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from losses import detection_loss
from networks import Classifier, Detector
from pictures import one_shape, random_stream, scene
from shapes import CLASSES
from torch.nn import functional

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent

sys.path.insert(0, str(EXAMPLES))
from image_classification import IMAGENET_DEVIATION, IMAGENET_MEAN  # noqa: E402

# steps of how many pictures, and the highest learning rate
RECIPES = {"detector": (2200, 24, 3e-3), "classifier": (1200, 32, 1.5e-3)}


def rate(peak, progress):
    """Short warm-up, then half a cosine down to nothing."""
    return peak * min(1.0, progress / 0.03) * (0.5 + 0.5 * math.cos(math.pi * progress))


def classifier_loss(model, pictures):
    """Cross entropy of a batch of `one_shape`, with a little of the goal on the other classes."""
    images = np.stack([image for image, _ in pictures]).astype(np.float32) / 255
    x = torch.from_numpy((images - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_DEVIATION)).permute(0, 3, 1, 2)
    labels = torch.tensor([label for _, label in pictures])
    return functional.cross_entropy(model(x), labels, label_smoothing=0.05)


def detector_loss(model, pictures):
    """`detection_loss` of a batch of `scene`."""
    x = torch.from_numpy(np.stack([image for image, *_ in pictures]).astype(np.float32) / 255).permute(0, 3, 1, 2)
    targets = [(torch.from_numpy(boxes), torch.from_numpy(labels)) for _, boxes, labels in pictures]
    return detection_loss(*model.raw(x), targets, model.cells, model.cell_strides)


KINDS = {"detector": (Detector, scene, detector_loss), "classifier": (Classifier, one_shape, classifier_loss)}


def train(kind, folder, steps=None, seed=1):
    """A trained network in evaluation mode; no picture is shown twice. The detector's file is read from `folder`."""
    model_class, draw, loss_of = KINDS[kind]
    full, batch, peak = RECIPES[kind]
    steps = full if steps is None else steps
    torch.manual_seed(seed)
    model = model_class().train()
    if kind == "classifier":
        model.begin_with(folder / "shapes_detector.onnx", IMAGENET_MEAN, IMAGENET_DEVIATION)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}])
    begun, total = time.time(), 0.0
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(peak, (step + 1) / steps)
        rng = random_stream("train", seed, step)
        loss = loss_of(model, [draw(rng) for _ in range(batch)])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        total += loss.item()
        if (step + 1) % 50 == 0:
            print(f"{kind} {step + 1}/{steps} loss {total / 50:.4f} {time.time() - begun:.0f} s", flush=True)
            total = 0.0
    return model.eval()


def export(model, path):
    """Writes the network with the names of the vendor's examples; batch norms become part of the convolutions."""
    names = ("images", "output0") if isinstance(model, Detector) else ("input", "logits")
    torch.onnx.export(
        model,
        (torch.zeros(1, 3, model.side, model.side),),
        str(path),
        input_names=names[:1],
        output_names=names[1:],
        dynamic_axes={name: {0: "batch"} for name in names},
        opset_version=17,
        dynamo=False,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=KINDS, help="one of both; the classifier begins with the detector in --out")
    parser.add_argument("--out", type=Path, default=HERE.parent, help="folder for the ONNX files")
    parser.add_argument("--steps", type=int, help="instead of the recipe's, to try something")
    parser.add_argument("--no-evaluate", action="store_true", help="only write the ONNX files")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms imports the compiler, for two seconds
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    for kind in [args.only] if args.only else KINDS:
        model = train(kind, args.out, args.steps)
        export(model, args.out / f"shapes_{kind}.onnx")
        if not args.no_evaluate:
            subprocess.run([sys.executable, HERE / "evaluate.py", kind, "--models", args.out], check=True)


if __name__ == "__main__":
    main()
