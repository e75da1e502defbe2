"""Finds objects in images with a detector from an ONNX file and draws their boxes, as the vendor's yolo examples do.

python examples/object_detection.py examples/demo_networks/shapes_detector.onnx \\
    examples/demo_networks/images/scene_1.png -o out

The network has one input [1, 3, H, W], RGB from 0 to 1, and one output [1, 4 + classes, candidates] as YOLOv8 exports
it: x and y of the middle, width and height in pixels of the input, then the scores. Detectors so exported will do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from network_file import add_arguments, image_size, open_network, read_labels
from PIL import Image, ImageDraw

import tcim_lite.runtime as tcim
from tcim_lite.console import run_main
from tcim_lite.llm.images import read_image

_GREY = (114, 114, 114)  # around images of another form
_COLOURS = ("#e6194b", "#3cb44b", "#ffe119", "#4363d8", "#f58231", "#911eb4", "#46f0f0", "#f032e6", "#bcf60c", "#fff")


@dataclass(frozen=True)
class Letterbox:
    """Where an image lies in a network's input: pixel p of the image is at p * scale + (left, top)."""

    scale: float
    left: int
    top: int

    def to_image(self, boxes: np.ndarray, width: int, height: int) -> np.ndarray:
        """Boxes [n, 4] of the input as boxes of the image, cut at its borders."""
        corners = (boxes - np.float32([self.left, self.top] * 2)) / self.scale
        return np.clip(corners, 0, np.float32([width, height] * 2))


def prepare(image: Image.Image, height: int, width: int) -> tuple[np.ndarray, Letterbox]:
    """[1, 3, height, width] float16 from 0 to 1: the image as large as it fits, in the middle of grey."""
    scale = min(width / image.width, height / image.height)
    new_size = (max(round(image.width * scale), 1), max(round(image.height * scale), 1))
    place = Letterbox(scale, (width - new_size[0]) // 2, (height - new_size[1]) // 2)
    canvas = Image.new("RGB", (width, height), _GREY)
    canvas.paste(image.convert("RGB").resize(new_size, Image.Resampling.BILINEAR), (place.left, place.top))
    pixels = np.asarray(canvas, np.float32).transpose(2, 0, 1)[None] / 255
    return np.ascontiguousarray(pixels, np.float16), place


def candidates_of(module: tcim.Module, image: np.ndarray) -> np.ndarray:
    """Runs the network on a prepared image; [4 + classes, candidates] float32."""
    module.set_input(module.get_input_name(0), image)
    module.run()
    module.sync()
    return module.get_output(module.get_output_name(0)).astype(np.float32).numpy()[0]


def overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """IoU of a box [4] with each of `others` [n, 4], as corners x1, y1, x2, y2."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.maximum(sides, 0).prod(axis=1)
    areas = (others[:, 2:] - others[:, :2]).prod(axis=1) + (box[2:] - box[:2]).prod()
    return common / np.maximum(areas - common, 1e-9)


def non_maximum_suppression(
    boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, most_overlap: float
) -> list[int]:
    """Indices, best score first, of boxes [n, 4] that overlap no better one of their class by more than the limit."""
    kept: list[int] = []
    waiting = np.argsort(-scores, kind="stable")
    while len(waiting):
        best, waiting = int(waiting[0]), waiting[1:]
        kept.append(best)
        hidden = (labels[waiting] == labels[best]) & (overlaps(boxes[best], boxes[waiting]) > most_overlap)
        waiting = waiting[~hidden]
    return kept


def detections(
    candidates: np.ndarray, least_score: float = 0.25, most_overlap: float = 0.45
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes [n, 4] as corners in pixels of the input, scores [n] and classes [n], best first."""
    scores, labels = candidates[4:].max(axis=0), candidates[4:].argmax(axis=0)
    chosen = scores >= least_score
    middle, size = candidates[:2, chosen].T, candidates[2:4, chosen].T
    boxes = np.concatenate([middle - size / 2, middle + size / 2], axis=1)
    scores, labels = scores[chosen], labels[chosen]
    kept = non_maximum_suppression(boxes, scores, labels, most_overlap)
    return boxes[kept], scores[kept], labels[kept]


def draw(
    image: Image.Image, boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, labels: list[str]
) -> Image.Image:
    """A copy of the image with a frame and a name for each box, in pixels of the image."""
    drawn = image.convert("RGB").copy()
    pen = ImageDraw.Draw(drawn)
    for box, score, number in zip(boxes.tolist(), scores.tolist(), classes.tolist(), strict=True):
        colour = _COLOURS[number % len(_COLOURS)]
        pen.rectangle(box, outline=colour, width=2)
        text = f"{labels[number]} {score:.2f}"
        corner = (box[0] + 2, max(box[1] - 11, 0))
        pen.rectangle(pen.textbbox(corner, text), fill="black")
        pen.text(corner, text, fill=colour)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("images", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="folder for IMAGE_boxes.png (default: here)")
    parser.add_argument("--score", type=float, default=0.25, help="least score of a detection (default 0.25)")
    parser.add_argument("--overlap", type=float, default=0.45, help="most IoU of two boxes of a class (default 0.45)")
    args = parser.parse_args()
    try:
        module = open_network(args.model, args.quant)
        height, width = image_size(module)
        rows = module.get_output_info(module.get_output_name(0)).shape
        if len(rows) != 3 or rows[1] < 5:
            raise ValueError(f"the network's first output is {tuple(rows)}, expected [1, 4 + classes, candidates]")
        labels = read_labels(args.model, args.labels, rows[1] - 4)
        args.output.mkdir(parents=True, exist_ok=True)
        for path in args.images:
            image = read_image(path)
            prepared, place = prepare(image, height, width)
            boxes, scores, classes = detections(candidates_of(module, prepared), args.score, args.overlap)
            boxes = place.to_image(boxes, image.width, image.height)
            target = args.output / f"{path.stem}_boxes.png"
            draw(image, boxes, scores, classes, labels).save(target)
            print(f"{path.name}: {len(boxes)} found, drawn in {target}")
            for box, score, number in zip(boxes, scores, classes, strict=True):
                print(f"  {score:7.2%}  {labels[number]:10}" + "".join(f"{side:7.1f}" for side in box))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except (OSError, ValueError, RuntimeError, Image.DecompressionBombError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    run_main(main)
