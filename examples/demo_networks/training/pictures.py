"""Random pictures with known content: one shape for the classifier, several with boxes for the detector."""

import numpy as np
from shapes import CLASSES, box_of, line, paint, place

# Apart in kind, so that no picture of the tables or of images/ was ever trained on.
SPLITS = {"train": 0, "test": 1, "examples": 2}

CLASSIFIER_SIDE = 64
DETECTOR_SIDE = 160


def random_stream(split, *numbers):
    """The generator of one picture, or of one batch: equal arguments draw equal pictures."""
    return np.random.default_rng([SPLITS[split], *numbers])


def _background(rng, height, width):
    """A gradient with blotches, some lines and specks: what the networks have to ignore."""
    colour, blotch = rng.uniform(30, 225, 3), rng.uniform(0, 28)
    coarse = rng.standard_normal((6, 6, 3)) * blotch
    coarse = coarse + rng.uniform(-25, 25, (1, 1, 3)) * np.linspace(-1, 1, 6)[:, None, None]
    rows, columns = (np.linspace(0, 5 - 1e-6, side) for side in (height, width))
    r, c = rows.astype(int), columns.astype(int)
    fr, fc = (rows - r)[:, None, None], (columns - c)[None, :, None]
    upper = coarse[r][:, c] * (1 - fc) + coarse[r][:, c + 1] * fc
    lower = coarse[r + 1][:, c] * (1 - fc) + coarse[r + 1][:, c + 1] * fc
    image = (colour + upper * (1 - fr) + lower * fr).astype(np.float32)
    size = np.array([width, height])
    for _ in range(rng.integers(0, 5)):
        paint(image, line(rng.uniform(0, size), rng.uniform(0, size), rng.uniform(1, 4)), None, rng.uniform(0, 255, 3))
    for _ in range(rng.integers(0, 6)):
        speck = place("circle", rng.uniform(0, size), rng.uniform(1, 3.5), 1.0, 0.0)
        paint(image, *speck, rng.uniform(0, 255, 3))
    return image, colour


def _colour_apart(rng, other, least):
    """A colour whose largest channel difference from `other` is at least `least` of 255."""
    while True:
        colour = rng.uniform(0, 255, 3)
        if np.abs(colour - other).max() >= least:
            return colour


def _draw(rng, image, background, name, centre, radius):
    """Draws one shape and returns its box."""
    outline, hole = place(name, centre, radius, np.exp(rng.uniform(-0.25, 0.25)), rng.uniform(0, 2 * np.pi))
    colour = _colour_apart(rng, background, 50)
    border = rng.uniform(0, 255, 3) if rng.random() < 0.3 else None
    paint(image, outline, hole, colour, border, radius * rng.uniform(0.06, 0.15))
    return box_of(outline)


def _finish(rng, image):
    """Noise and light; uint8."""
    image = (image - 128) * rng.uniform(0.6, 1.1) + 128 + rng.uniform(-20, 20)
    noisy = image + rng.standard_normal(image.shape) * rng.uniform(0, 22)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


def one_shape(rng, side=CLASSIFIER_SIDE):
    """A picture [side, side, 3] uint8 RGB and the class of the shape in it."""
    image, background = _background(rng, side, side)
    label = int(rng.integers(len(CLASSES)))
    radius = side * rng.uniform(0.15, 0.42)
    centre = rng.uniform(radius * 0.9, side - radius * 0.9, 2)
    _draw(rng, image, background, CLASSES[label], centre, radius)
    if rng.random() < 0.4:  # something before it
        ends = centre + rng.uniform(-1.2, 1.2, (2, 2)) * radius
        paint(image, line(*ends, side * rng.uniform(0.02, 0.06)), None, rng.uniform(0, 255, 3))
    return _finish(rng, image), label


def scene(rng, height=DETECTOR_SIDE, width=DETECTOR_SIDE, most=8):
    """A picture [height, width, 3] uint8 RGB, boxes [n, 4] (x1, y1, x2, y2 in pixels) and classes [n]."""
    image, background = _background(rng, height, width)
    boxes, labels = [], []
    for _ in range(rng.integers(1, most + 1)):
        label, radius = int(rng.integers(len(CLASSES))), np.exp(rng.uniform(np.log(8), np.log(38)))
        for _ in range(10):  # a place where it hides little of another; none in ten: left out
            centre = rng.uniform(radius * 0.8, np.array([width, height]) - radius * 0.8)
            around = np.concatenate([centre - radius, centre + radius])
            if all(_overlap(around, other) < 0.12 for other in boxes):
                box = _draw(rng, image, background, CLASSES[label], centre, radius)
                boxes.append(np.clip(box, 0, [width, height] * 2))
                labels.append(label)
                break
    return _finish(rng, image), np.array(boxes, np.float32).reshape(-1, 4), np.array(labels, np.int64)


def _overlap(a, b):
    """The share of the smaller box that both cover."""
    covered = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0).prod()
    return covered / min((a[2:] - a[:2]).prod(), (b[2:] - b[:2]).prod())
