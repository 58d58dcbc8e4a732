"""Draws `receipt.png`, the picture that the demo reads.

The picture is committed; this script is only needed to change it. Run from the repository root:

    python -m examples.ocr.make_image [FONT.ttf]

The font is any TrueType file. The committed picture was drawn with DejaVu Sans.
"""

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

IMAGE = Path(__file__).with_name("receipt.png")
DEFAULT_FONT = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
SIZE = (480, 352)
PAPER, INK = (250, 248, 240), (35, 35, 40)

# (text, font size, x, y of the top)
LINES = [
    ("Strata Cafe", 40, 124, 24),
    ("2 x Espresso 4.80", 26, 48, 100),
    ("1 x Blueberry pie 3.95", 26, 48, 148),
    ("3 x Orange juice 9.60", 26, 48, 196),
    ("Total 18.35", 32, 48, 250),
    ("Thank you!", 24, 48, 306),
]


def draw(font: Path) -> Image.Image:
    """The receipt as an RGB picture."""
    image = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(image)
    for text, size, x, y in LINES:
        pen.text((x, y), text, fill=INK, font=ImageFont.truetype(str(font), size))
    pen.line((48, 84, SIZE[0] - 48, 84), fill=INK, width=2)
    pen.line((48, 240, SIZE[0] - 48, 240), fill=INK, width=2)
    return image


if __name__ == "__main__":
    font_file = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FONT
    draw(font_file).save(IMAGE, optimize=True)
    print(f"{IMAGE}: {IMAGE.stat().st_size} bytes")
