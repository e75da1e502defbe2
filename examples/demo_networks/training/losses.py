"""What the detector learns from: which cells stand for which shape, and how far their boxes are from it."""

import torch
from torch.nn import functional

_SMALL = 36.0  # pixels; shapes whose longer side is below belong to the fine cells, others to the coarse ones
_REACH = 1.5  # strides; cells whose middle is nearer to the middle of a shape stand for it


def assign(boxes, cells, strides):
    """The shape that each cell stands for, -1 for none: [cells]. `boxes` [n, 4] corners in pixels."""
    if not len(boxes):
        return torch.full((cells.shape[1],), -1)
    low, high = boxes[:, :2], boxes[:, 2:]
    size = high - low
    is_small = size.amax(1, keepdim=True) < _SMALL
    right_level = is_small == (strides == strides.min())  # [n, cells]
    away = (cells.T[None] - (low + high)[:, None] / 2).abs().amax(2)
    inside = ((cells.T[None] > low[:, None]) & (cells.T[None] < high[:, None])).all(2)
    candidate = right_level & (away < _REACH * strides) & inside
    area = torch.where(candidate, size.prod(1, keepdim=True), torch.inf)
    smallest, which = area.min(0)
    return torch.where(smallest < torch.inf, which, -1)


def overlaps(a, b):
    """IoU and generalised IoU of boxes [n, 4], pair by pair."""

    def area(box):
        return (box[:, 2:] - box[:, :2]).clamp(min=0).prod(1)

    common = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    union = area(a) + area(b) - common + 1e-6
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1) + 1e-6
    return common / union, common / union - (hull - union) / hull


def detection_loss(scores, corners, targets, cells, strides):
    """Quality focal loss of the scores, whose goal is the IoU of the cell's own box, and 2 (1 - GIoU) of the boxes.

    Args:
        scores: [N, classes, cells] before the sigmoid.
        corners: [N, 4, cells] pixels.
        targets: (boxes [n, 4], labels [n]) of each picture.
        cells: Middles [2, cells] in pixels.
        strides: Of the cells, [1, cells].
    """
    chosen = torch.stack([assign(boxes, cells, strides) for boxes, _ in targets])
    picture, cell = (chosen >= 0).nonzero(as_tuple=True)
    shape = chosen[picture, cell]
    ours = corners[picture, :, cell]
    wanted = torch.stack([targets[p][0][s] for p, s in zip(picture.tolist(), shape.tolist(), strict=True)])
    labels = torch.stack([targets[p][1][s] for p, s in zip(picture.tolist(), shape.tolist(), strict=True)])
    iou, giou = overlaps(ours, wanted)
    goal = torch.zeros_like(scores)
    goal[picture, labels, cell] = iou.detach().clamp(min=0.05)
    far = (goal - torch.sigmoid(scores)).detach().abs() ** 2
    focal = (far * functional.binary_cross_entropy_with_logits(scores, goal, reduction="none")).sum()
    return (focal + 2 * (1 - giou).sum()) / len(shape)
