"""Draws the test images of the examples: the first of each class, and three scenes with what is in them as JSON."""

import argparse
import json
from pathlib import Path

from pictures import one_shape, random_stream, scene
from PIL import Image
from shapes import CLASSES

SCENE_SIZES = ((120, 160), (160, 130), (140, 140))  # height, width; none is the network's


def make_images(folder):
    """Writes CLASS.png, scene_N.png and scenes.json: {file: [[class, x1, y1, x2, y2], ..]} in pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    missing, number = set(range(len(CLASSES))), 0
    while missing:
        image, label = one_shape(random_stream("examples", 0, number), side=96)
        number += 1
        if label in missing:
            missing.remove(label)
            Image.fromarray(image).save(folder / f"{CLASSES[label]}.png", optimize=True)
    truth = {}
    for number, (height, width) in enumerate(SCENE_SIZES, start=1):
        image, boxes, labels = scene(random_stream("examples", 1, number), height, width)
        Image.fromarray(image).save(folder / f"scene_{number}.png", optimize=True)
        truth[f"scene_{number}.png"] = [
            [CLASSES[label], *(round(side, 1) for side in box)]
            for label, box in zip(labels.tolist(), boxes.tolist(), strict=True)
        ]
    (folder / "scenes.json").write_text(json.dumps(truth, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "images")
    make_images(parser.parse_args().out)


if __name__ == "__main__":
    main()
