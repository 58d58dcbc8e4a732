"""Inputs of the zoo's models, made from their descriptions in `models.json`.

A description is `{"shape", "dtype", "gen", "seed", ...}`; `gen` names the kind of values, and what
else there is are its parameters. NumPy's `RandomState` is frozen, so a seed gives the same numbers
everywhere and for ever. A picture is a page of words, one line of text, or a scene of discs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Random = np.random.RandomState
Spec = Mapping[str, Any]

FONT = {
    "A": "0e11111f111111", "E": "1f10101e10101f", "H": "1111111f111111", "I": "0e04040404040e",
    "L": "1010101010101f", "M": "111b1515111111", "N": "11191513111111", "O": "0e11111111110e",
    "R": "1e11111e141211", "S": "0f10100e01011e", "T": "1f040404040404", "0": "0e11131519110e",
    "1": "040c040404040e", "2": "0e11010608101f", "6": "0608101e11110e", "7": "1f010204080808",
}
"""Letters of 5x7 dots: seven rows, two hexadecimal digits each. Others are left blank."""
WORDS = ("STRATA", "MATMUL", "HELLO", "2026", "TENSOR", "IR 1", "LINE 27", "RELU")
TINT = (1.0, 0.96, 0.9)
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def make_inputs(case: Spec) -> dict[str, Array]:
    """The inputs of a case, by name."""
    return {name: make_input(spec) for name, spec in case["inputs"].items()}


def make_input(spec: Spec) -> Array:
    """One input. Raises KeyError for a kind of values that there is not."""
    shape = tuple(spec["shape"])
    values = KINDS[spec["gen"]](spec, shape, Random(spec.get("seed", 0)))
    return np.ascontiguousarray(np.asarray(values).astype(spec["dtype"])).reshape(shape)


# ---------------------------------------------------------------------- plain numbers
def _mask(spec: Spec, shape: Sequence[int], _: Random) -> Array:
    """Row r is ones, but for r * step zeros at its end."""
    kept = shape[1] - spec["step"] * np.arange(shape[0])
    return np.arange(shape[1])[None, :] < kept[:, None]


def _tones(spec: Spec, shape: Sequence[int], random: Random) -> Array:
    """A chirp that swells, a hum and some noise, at 16 kHz."""
    t = np.arange(shape[-1]) / 16000.0
    chirp = 0.5 * np.sin(2 * np.pi * (180 + 400 * t) * t) * np.sin(2 * np.pi * 3 * t)
    hum = 0.1 * np.sin(2 * np.pi * 50 * t)
    return spec["scale"] * (chirp + hum + 0.05 * random.standard_normal(shape))


# ---------------------------------------------------------------------- pictures
def _image(spec: Spec, shape: Sequence[int], random: Random) -> Array:
    """Pictures of [n, channels, height, width], normalized as `norm` says."""
    count, channels, height, width = shape
    draw = STYLES[spec["style"]]
    planes = np.stack([
        np.stack([draw(height, width, random)] * channels) for _ in range(count)])
    if channels == 3:
        planes = planes * _per_channel(TINT)
    match spec.get("norm"):
        case "imagenet":
            return (planes - _per_channel(IMAGENET[0])) / _per_channel(IMAGENET[1])
        case "half":
            return (planes - 0.5) / 0.5
        case _:
            return planes


def _image_nhwc(spec: Spec, shape: Sequence[int], random: Random) -> Array:
    count, height, width, channels = shape
    planes = _image(spec, (count, channels, height, width), random)
    return spec.get("scale", 1.0) * planes.transpose(0, 2, 3, 1)


def _per_channel(values: Sequence[float]) -> Array:
    return np.array(values).reshape(1, 3, 1, 1)


def _scene(height: int, width: int, random: Random) -> Array:
    """Discs on a gradient with waves."""
    y, x = np.mgrid[0:height, 0:width]
    page = 0.3 + 0.4 * x / width + 0.2 * np.sin(y / 17.0)
    for _ in range(9):
        middle = random.randint(0, height), random.randint(0, width)
        radius = random.randint(8, max(9, min(height, width) // 5))
        inside = (y - middle[0]) ** 2 + (x - middle[1]) ** 2 < radius * radius
        page[inside] = random.uniform(0, 1)
    return page + 0.02 * random.standard_normal(page.shape)


def _line(height: int, width: int, random: Random) -> Array:
    """One line of words, as high as the picture."""
    page = np.full((height, width), 0.97)
    scale = max(1, int(height * 0.7) // 7)
    x, count = scale, 0
    while x < width - 12 * scale:
        word = WORDS[count % len(WORDS)]
        x = _write(page, word, (height - 7 * scale) // 2, x, scale, 0.05) + 3 * scale
        count += 1
    return page + 0.01 * random.standard_normal(page.shape)


def _page(height: int, width: int, random: Random) -> Array:
    """Lines of words in two sizes."""
    page = np.full((height, width), 0.97)
    count = 0
    for y in range(10, height - 30, 42):
        x = 8
        while x < width - 80:
            word = WORDS[count % len(WORDS)]
            x = _write(page, word, y, x, 2 + count % 2, random.uniform(0, 0.3)) + 20
            count += 1
    return page + 0.01 * random.standard_normal(page.shape)


def _write(page: Array, word: str, y: int, x: int, scale: int, ink: float) -> int:
    """Write a word; the x behind it. A letter that would leave the page is left out."""
    for letter in word:
        fits = y + 7 * scale <= page.shape[0] and x + 5 * scale <= page.shape[1]
        if letter in FONT and fits:
            dots = np.kron(_dots(letter), np.ones((scale, scale), bool))
            page[y:y + 7 * scale, x:x + 5 * scale][dots] = ink
        x += 6 * scale
    return x


def _dots(letter: str) -> Array:
    """The 7x5 dots of a letter."""
    rows = np.frombuffer(bytes.fromhex(FONT[letter]), np.uint8)
    return np.unpackbits(rows[:, None], axis=1)[:, 3:].astype(bool)


STYLES = {"scene": _scene, "line": _line, "page": _page}
KINDS = {
    "normal": lambda spec, shape, random: random.standard_normal(shape) * spec["scale"],
    "uniform": lambda spec, shape, random: random.uniform(spec["low"], spec["high"], shape),
    "integers": lambda spec, shape, random: random.randint(spec["low"], spec["high"], shape),
    "constant": lambda spec, shape, _: np.full(shape, spec["value"]),
    "values": lambda spec, shape, _: np.array(spec["values"]).reshape(shape),
    "mask": _mask,
    "tones": _tones,
    "image": _image,
    "image_nhwc": _image_nhwc,
}
