"""Where the text is: the input and output of the PP-OCRv4 detection network.

The network marks each pixel with the probability that it belongs to the shrunk core of a text
line ("differentiable binarization"). A line is therefore a connected component of marked pixels,
grown back by a margin that follows from its area and outline.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from examples.ocr.engines import Engine

MEAN = np.array([0.485, 0.456, 0.406], np.float32)  # ImageNet's, as the network was trained
STD = np.array([0.229, 0.224, 0.225], np.float32)
STRIDE = 32  # the network halves its input five times
LONGEST_SIDE = 960
PIXEL_THRESHOLD = 0.3
BOX_THRESHOLD = 0.5
MIN_SIDE = 3
UNCLIP = 1.6


@dataclass(frozen=True)
class Box:
    """A rectangle; `right` and `bottom` are the first column and row outside it."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top


def detect(engine: Engine, model: Path, image: Image.Image) -> list[Box]:
    """The boxes of the text lines in reading order, in the picture's coordinates."""
    (probability,) = engine.run(model, {"x": preprocess(image)})
    height, width = probability.shape[2:]
    boxes = find_boxes(probability[0, 0])
    scaled = [scale(box, image.width / width, image.height / height, image.size) for box in boxes]
    return reading_order(scaled)


def preprocess(image: Image.Image) -> np.ndarray:
    """The picture as 1x3xHxW in blue, green, red; H and W multiples of the stride."""
    ratio = min(1.0, LONGEST_SIDE / max(image.size))
    width, height = (max(STRIDE, round(side * ratio / STRIDE) * STRIDE) for side in image.size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(resized, np.float32)[:, :, ::-1] / 255
    return np.ascontiguousarray(((pixels - MEAN) / STD).transpose(2, 0, 1)[None])


def find_boxes(probability: np.ndarray) -> list[Box]:
    """Threshold, components, and per component: reject the weak, grow the rest."""
    boxes = [
        b for b in components(probability > PIXEL_THRESHOLD) if min(b.width, b.height) >= MIN_SIDE
    ]
    strong = [
        b for b in boxes if probability[b.top : b.bottom, b.left : b.right].mean() > BOX_THRESHOLD
    ]
    return [unclip(box) for box in strong]


def components(mask: np.ndarray) -> list[Box]:
    """The bounding boxes of the 8-connected components of `mask`.

    A component is a set of horizontal runs; a run joins those of the row above that it touches.
    """
    runs = row_runs(mask)
    parent = list(range(len(runs)))

    def root(run: int) -> int:
        while parent[run] != run:
            parent[run] = parent[parent[run]]
            run = parent[run]
        return run

    above = 0
    for i, (row, start, stop) in enumerate(runs):
        while runs[above][0] < row - 1 or (runs[above][0] == row - 1 and runs[above][2] < start):
            above += 1
        j = above
        while runs[j][0] == row - 1 and runs[j][1] <= stop:
            parent[root(i)] = root(j)
            j += 1
    groups: dict[int, list[tuple[int, int, int]]] = {}
    for i, run in enumerate(runs):
        groups.setdefault(root(i), []).append(run)
    return [bounds(group) for group in groups.values()]


def row_runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
    """(row, first column, first column after) of each horizontal run of marked pixels."""
    edges = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, starts = np.nonzero(edges == 1)
    _, stops = np.nonzero(edges == -1)
    return list(zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True))


def bounds(runs: list[tuple[int, int, int]]) -> Box:
    rows, starts, stops = zip(*runs, strict=True)
    return Box(min(starts), min(rows), max(stops), max(rows) + 1)


def unclip(box: Box) -> Box:
    """Grow by area * UNCLIP / perimeter on every side: the inverse of the training's shrinking."""
    margin = round(box.width * box.height * UNCLIP / (2 * (box.width + box.height)))
    return Box(box.left - margin, box.top - margin, box.right + margin, box.bottom + margin)


def scale(box: Box, x: float, y: float, size: tuple[int, int]) -> Box:
    """From the network's coordinates to the picture's, cut at its border."""
    return Box(
        max(0, round(box.left * x)),
        max(0, round(box.top * y)),
        min(size[0], round(box.right * x)),
        min(size[1], round(box.bottom * y)),
    )


def reading_order(boxes: list[Box]) -> list[Box]:
    """Top to bottom; boxes that overlap by half their height are one row, left to right."""
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=lambda b: b.top):
        if rows and box.top + box.height / 2 < rows[-1][0].bottom:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row, key=lambda b: b.left)]
