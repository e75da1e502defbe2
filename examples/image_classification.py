"""Names what is in images, with a classifier from an ONNX file, step by step as the vendor's resnet50 example does.

python examples/image_classification.py examples/demo_networks/shapes_classifier.onnx \\
    examples/demo_networks/images/star.png

Any classifier with one input [1, 3, H, W] in RGB, normalised as torchvision's are, and one output [1, classes] will do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from network_file import add_arguments, image_size, open_network, read_labels
from PIL import Image

import tcim_lite.runtime as tcim
from tcim_lite.console import run_main
from tcim_lite.llm.images import read_image

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of red, green and blue from 0 to 1
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)


def prepare(image: Image.Image, height: int, width: int) -> np.ndarray:
    """[1, 3, height, width] float16: the whole image, stretched, less the mean, by the deviation."""
    pixels = np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR), np.float32) / 255
    normal = (pixels - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_DEVIATION)
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[None], np.float16)


def logits_of(module: tcim.Module, image: np.ndarray) -> np.ndarray:
    """Runs the network on a prepared image; [classes] float32."""
    module.set_input(module.get_input_name(0), image)
    module.run()
    module.sync()
    return module.get_output(module.get_output_name(0)).astype(np.float32).numpy().reshape(-1)


def softmax(logits: np.ndarray) -> np.ndarray:
    """[classes] that add up to 1."""
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("images", nargs="+", type=Path)
    parser.add_argument("--top", type=int, default=5, help="classes to print of each image (default 5)")
    parser.add_argument("--save-input", type=Path, metavar="FILE", help="also write the last input's bytes, for C++")
    args = parser.parse_args()
    try:
        module = open_network(args.model, args.quant)
        size = image_size(module)
        count = int(np.prod(module.get_output_info(module.get_output_name(0)).shape))
        labels = read_labels(args.model, args.labels, count)
        for path in args.images:
            image = prepare(read_image(path), *size)
            shares = softmax(logits_of(module, image))
            print(f"{path.name}:")
            for index in np.argsort(-shares, kind="stable")[: args.top]:
                print(f"  {shares[index]:7.2%}  {labels[index]}")
        if args.save_input:
            info = module.get_input_info(module.get_input_name(0))
            args.save_input.write_bytes(image.astype(info.dtype).tobytes())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except (OSError, ValueError, RuntimeError, Image.DecompressionBombError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    run_main(main)
