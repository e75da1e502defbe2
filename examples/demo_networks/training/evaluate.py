"""Accuracy of the demo networks on pictures that were never trained on, by the emulator in every profile.

The first column is onnxruntime in float32, an independent judge of the rest; left out where it is not installed.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from pictures import one_shape, random_stream, scene
from PIL import Image
from shapes import CLASSES

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
import image_classification as classification  # noqa: E402
import object_detection as detection  # noqa: E402
from network_file import open_network  # noqa: E402

PROFILES = ("float32", "float16", "w8a8h1_sefp")
COUNTS = {"classifier": 2000, "detector": 600}
IOU_LIMITS = np.arange(0.5, 1.0, 0.05)  # of COCO's mAP


def by_onnxruntime(path):
    """A function from a prepared image to output 0, or None."""
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda image: session.run(None, {session.get_inputs()[0].name: image.astype(np.float32)})[0][0]


def runners(kind, path):
    """{column: function from a prepared image to output 0}."""
    run = {"classifier": classification.logits_of, "detector": detection.candidates_of}[kind]
    there = by_onnxruntime(path)
    columns = {"onnxruntime float32": there} if there else {}
    for profile in PROFILES:
        module = open_network(path, profile)
        columns[profile] = lambda image, module=module: run(module, image)
    return columns


def classifier_rows(columns, count):
    """{row: {column: value}}: per cent of right first guesses, and of right answers among the first two."""
    pictures = [one_shape(random_stream("test", 0, number)) for number in range(count)]
    images = [classification.prepare(Image.fromarray(image), *image.shape[:2]) for image, _ in pictures]
    truth = np.array([label for _, label in pictures])
    rows = {"top 1": {}, "top 2": {}}
    for column, run in columns.items():
        ranked = np.argsort(-np.stack([run(image) for image in images]), axis=1, kind="stable")
        rows["top 1"][column] = 100 * np.mean(ranked[:, 0] == truth)
        rows["top 2"][column] = 100 * np.mean((ranked[:, :2] == truth[:, None]).any(axis=1))
    return rows


def all_overlaps(boxes, truth):
    """IoU of each of boxes [n, 4] with each of truth [m, 4]: [n, m]."""
    return np.array([detection.overlaps(box, truth) for box in boxes]).reshape(len(boxes), len(truth))


def matched(overlaps, scores, iou_limit):
    """Of each detection of a class, best first over all pictures, whether it is the first to find a true box.

    Args:
        overlaps: [n, m] of each picture: IoU of its detections with the true boxes.
        scores: [n] of each picture.
        iou_limit: Least IoU of a detection and the box it finds.
    """
    order = sorted(((-score, p, i) for p, some in enumerate(scores) for i, score in enumerate(some)))
    free = [np.ones(each.shape[1], bool) for each in overlaps]
    hits = []
    for _, p, i in order:
        iou = np.where(free[p], overlaps[p][i], 0)
        hit = len(iou) > 0 and iou.max() >= iou_limit
        if hit:
            free[p][iou.argmax()] = False
        hits.append(hit)
    return np.array(hits, bool)


def average_precision(hits, count):
    """Area below the precision that is reached at each recall or beyond, of `count` true boxes."""
    right = np.cumsum(hits)
    precision = right / np.arange(1, len(hits) + 1)
    best_beyond = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(best_beyond[hits]) / count)


def detector_rows(columns, count):
    """{row: {column: value}} in per cent: mAP as COCO has it, and recall and precision at a score of 0.25."""
    pictures = [scene(random_stream("test", 1, number)) for number in range(count)]
    images = [detection.prepare(Image.fromarray(image), *image.shape[:2])[0] for image, *_ in pictures]
    rows = {name: {} for name in ("mAP 50", "mAP 50-95", "recall at 0.25", "precision at 0.25")}
    for column, run in columns.items():
        found = [detection.detections(run(image), least_score=0.01) for image in images]
        precisions, right, shown, wanted = [], 0, 0, 0
        for number in range(len(CLASSES)):
            boxes = [b[labels == number] for b, _, labels in found]
            scores = [s[labels == number] for _, s, labels in found]
            truth = [b[labels == number] for _, b, labels in pictures]
            total = sum(map(len, truth))
            overlaps = [all_overlaps(b, t) for b, t in zip(boxes, truth, strict=True)]
            precisions.append([average_precision(matched(overlaps, scores, limit), total) for limit in IOU_LIMITS])
            sure = [(o[s >= 0.25], s[s >= 0.25]) for o, s in zip(overlaps, scores, strict=True)]
            hits = matched(*zip(*sure, strict=True), 0.5)
            right, shown, wanted = right + hits.sum(), shown + len(hits), wanted + total
        rows["mAP 50"][column] = 100 * np.mean(precisions, axis=0)[0]
        rows["mAP 50-95"][column] = 100 * np.mean(precisions)
        rows["recall at 0.25"][column] = 100 * right / wanted
        rows["precision at 0.25"][column] = 100 * right / max(shown, 1)
    return rows


def evaluate(kind, models=HERE.parent, count=None):
    """The table of a network as {row: {column: per cent}}."""
    rows_of = {"classifier": classifier_rows, "detector": detector_rows}[kind]
    return rows_of(runners(kind, models / f"shapes_{kind}.onnx"), count or COUNTS[kind])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+", choices=COUNTS)
    parser.add_argument("--models", type=Path, default=HERE.parent, help="folder of the ONNX files")
    parser.add_argument("--count", type=int, help="pictures; default 2000 for the classifier, 600 for the detector")
    args = parser.parse_args()
    for kind in args.kinds:
        table = evaluate(kind, args.models, args.count)
        print("| " + " | ".join([kind, *next(iter(table.values()))]) + " |")
        print("|" + "---|" * (1 + len(next(iter(table.values())))))
        for row, values in table.items():
            print("| " + " | ".join([row, *(f"{value:.2f}" for value in values.values())]) + " |")


if __name__ == "__main__":
    main()
