"""Ten shapes as polygons, drawn into images with smooth edges. numpy only; a seed decides every pixel."""

import numpy as np

# In the order of the networks' outputs; classes.txt beside the ONNX files is written from here.
CLASSES = ("circle", "ring", "square", "triangle", "hexagon", "star", "cross", "heart", "crescent", "arrow")


def _regular(corners, radius=1.0, turn=0.0):
    angle = 2 * np.pi * np.arange(corners) / corners + turn
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _star():
    points = _regular(10)
    points[1::2] *= 0.45
    return points


def _cross(arm=0.32):
    quarter = [(arm, 0.95), (arm, arm), (0.95, arm)]
    corners = []
    for turns in range(4):
        cos, sin = (1, 0, -1, 0)[turns], (0, 1, 0, -1)[turns]
        corners += [(cos * x + sin * y, -sin * x + cos * y) for x, y in quarter]
    return np.array(corners)


def _heart():
    t = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    x = 16 * np.sin(t) ** 3
    y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t))
    return np.stack([x, y - 2.5], axis=1) / 16


def _crescent():
    """A disc less another one; the arcs meet at two tips."""
    outer, inner = np.deg2rad(np.linspace(50, 310, 16)), np.deg2rad(np.linspace(282, 78, 13))
    back = np.stack([0.42 + 0.78 * np.cos(inner), 0.78 * np.sin(inner)], axis=1)
    return np.concatenate([np.stack([np.cos(outer), np.sin(outer)], axis=1), back])


_ARROW = np.array([(1, 0), (0.25, 0.75), (0.25, 0.28), (-0.95, 0.28), (-0.95, -0.28), (0.25, -0.28), (0.25, -0.75)])

# name -> (outline, hole or None), [corners, 2] within about a unit circle
OUTLINES = {
    "circle": (_regular(24, 0.95), None),
    "ring": (_regular(24, 0.95), _regular(20, 0.55)),
    "square": (_regular(4, turn=np.pi / 4), None),
    "triangle": (_regular(3), None),
    "hexagon": (_regular(6), None),
    "star": (_star(), None),
    "cross": (_cross(), None),
    "heart": (_heart(), None),
    "crescent": (_crescent(), None),
    "arrow": (_ARROW, None),
}


def signed_distance(x, y, polygon):
    """Pixels from each point to a polygon's edge, negative inside; `x` and `y` broadcast, `polygon` [corners, 2]."""
    nearest, inside = np.float32(np.inf), False
    ends = np.roll(polygon, -1, axis=0)
    for (ax, ay), (bx, by) in zip(polygon.tolist(), ends.tolist(), strict=True):
        ex, ey = bx - ax, by - ay
        wx, wy = x - ax, y - ay
        along = np.clip((wx * ex + wy * ey) / max(ex * ex + ey * ey, 1e-9), 0, 1)
        nearest = np.minimum(nearest, (wx - ex * along) ** 2 + (wy - ey * along) ** 2)
        if ay != by:  # a ray to the right crosses this edge
            inside ^= ((y < ay) != (y < by)) & (x < ax + (y - ay) * (ex / ey))
    distance = np.sqrt(nearest)
    return np.where(inside, -distance, distance)


def place(name, centre, radius, aspect, angle):
    """The outline and hole of a shape in pixels: stretched by `aspect`, then turned by `angle`."""
    cos, sin = np.cos(angle), np.sin(angle)
    stretch = np.sqrt(aspect) * np.array([1, 1 / aspect])
    turn = np.array([[cos, sin], [-sin, cos]])
    return [part if part is None else (part * stretch) @ turn * radius + centre for part in OUTLINES[name]]


def box_of(outline):
    """[x1, y1, x2, y2] in pixels."""
    return np.concatenate([outline.min(axis=0), outline.max(axis=0)])


def paint(image, outline, hole, colour, border=None, border_width=0.0):
    """Fills a polygon in `image` [H, W, 3] float32; an edge takes the share of the pixel that it covers."""
    height, width = image.shape[:2]
    x1, y1, x2, y2 = box_of(outline)
    left, top = max(int(x1) - 2, 0), max(int(y1) - 2, 0)
    right, bottom = min(int(x2) + 3, width), min(int(y2) + 3, height)
    if left >= right or top >= bottom:
        return
    x = np.arange(left, right, dtype=np.float32)[None] + np.float32(0.5)
    y = np.arange(top, bottom, dtype=np.float32)[:, None] + np.float32(0.5)
    distance = signed_distance(x, y, outline)
    if hole is not None:
        distance = np.maximum(distance, -signed_distance(x, y, hole))
    region = image[top:bottom, left:right]
    cover = np.clip(0.5 - distance, 0, 1)[..., None]
    ink = np.asarray(colour, np.float32)
    if border is not None:
        inner = np.clip(0.5 - (distance + border_width), 0, 1)[..., None]
        ink = inner * ink + (1 - inner) * np.asarray(border, np.float32)
    region += cover * (ink - region)


def line(start, end, width):
    """A thick line as a polygon."""
    start, end = np.asarray(start, float), np.asarray(end, float)
    along = (end - start) / max(np.linalg.norm(end - start), 1e-6)
    across = np.array([-along[1], along[0]]) * width / 2
    return np.array([start + across, end + across, end - across, start - across])
