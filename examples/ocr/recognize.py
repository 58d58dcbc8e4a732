"""What the text is: the input and output of the PP-OCRv4 recognition network.

The network reads a batch of lines of height 48 and answers, for each slice of eight columns, with
the probabilities of 6,625 symbols: a blank, the characters that its metadata lists, and a space.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from PIL import Image

from examples.ocr.detect import Box
from examples.ocr.engines import Engine

HEIGHT = 48
MIN_WIDTH = 320
WIDTH_STEP = 8
BATCH = 6
BLANK = 0


@dataclass(frozen=True)
class Line:
    """A line of text and the mean probability of its characters."""

    box: Box
    text: str
    confidence: float


def alphabet(model: Path) -> list[str]:
    """The symbols by their number, from the model's own metadata."""
    metadata = onnx.load(model, load_external_data=False).metadata_props
    characters = next(entry.value for entry in metadata if entry.key == "character")
    return ["", *characters.split("\n"), " "]


def recognize(engine: Engine, model: Path, image: Image.Image, boxes: list[Box]) -> list[Line]:
    """The text in each box. Lines of like width share a batch, so that little is padded."""
    symbols = alphabet(model)
    by_width = sorted(range(len(boxes)), key=lambda i: boxes[i].width / boxes[i].height)
    lines: dict[int, Line] = {}
    for first in range(0, len(boxes), BATCH):
        chosen = by_width[first : first + BATCH]
        (probabilities,) = engine.run(model, {"x": batch(image, [boxes[i] for i in chosen])})
        for i, one in zip(chosen, probabilities, strict=True):
            lines[i] = Line(boxes[i], *decode(one, symbols))
    return [lines[i] for i in range(len(boxes))]


def batch(image: Image.Image, boxes: list[Box]) -> np.ndarray:
    """Nx3x48xW in blue, green, red from -1 to 1, zero to the right of the shorter lines."""
    crops = [crop(image, box) for box in boxes]
    widest = max(MIN_WIDTH, *(one.shape[2] for one in crops))
    pixels = np.zeros((len(crops), 3, HEIGHT, -(-widest // WIDTH_STEP) * WIDTH_STEP), np.float32)
    for row, one in zip(pixels, crops, strict=True):
        row[:, :, : one.shape[2]] = one
    return pixels


def crop(image: Image.Image, box: Box) -> np.ndarray:
    """One box at the network's height, its proportions kept."""
    width = max(1, -(-HEIGHT * box.width // box.height))
    part = image.crop((box.left, box.top, box.right, box.bottom))
    pixels = np.asarray(part.resize((width, HEIGHT), Image.Resampling.BILINEAR), np.float32)
    return (pixels[:, :, ::-1].transpose(2, 0, 1) / 255 - 0.5) / 0.5


def decode(probabilities: np.ndarray, symbols: list[str]) -> tuple[str, float]:
    """Best symbol per slice, repeats joined, blanks dropped (greedy CTC decoding)."""
    best = probabilities.argmax(axis=1)
    first = np.concatenate(([True], best[1:] != best[:-1]))
    kept = first & (best != BLANK)
    if not kept.any():
        return "", 0.0
    return "".join(symbols[i] for i in best[kept]), float(probabilities.max(axis=1)[kept].mean())
