"""What is generated in docs/ is current."""

from __future__ import annotations

from importlib import metadata
from xml.etree import ElementTree

import pytest

from docs import pictures
from docs.operators import PAGE, page


def test_the_page_of_operators_is_current() -> None:
    """It depends on the installed onnx package; `make docs` writes it."""
    onnx = pytest.importorskip("onnx")
    if onnx.__version__ != "1.23.2":
        pytest.skip(f"the page is made with onnx 1.23.2, not {onnx.__version__}")
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("name", ["levels", "speed"])
def test_the_pictures_are_current(name: str) -> None:
    """Of the code, and of the result files; `make docs` writes them."""
    xdsl = metadata.version("xdsl")
    if name == "levels" and xdsl != "0.74.0":
        pytest.skip(f"it is made with xdsl 0.74.0, not {xdsl}")
    made = getattr(pictures, f"{name}_picture")()
    assert (pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8") == made
    ElementTree.fromstring(made)
    assert "prefers-color-scheme: dark" in made


def test_the_plot_shows_every_model() -> None:
    """All rows of the result files, also the slow ones, at their places."""
    page = pictures.GPU_MODELS.read_text(encoding="utf-8")
    assert f"geometric mean {pictures.mean(s for _, s in pictures.gpu_rows()):.2f} of " \
        f"{len(pictures.gpu_rows())}" in page
    made = pictures.speed_picture()
    for model, speed in pictures.gpu_rows():
        assert f"<title>{model}: {speed:.2f}x</title>" in made
    for model, speeds in pictures.cpu_rows():
        assert all(f"{model}, {way}: {speed:.2f}x" in made for way, speed in speeds.items())
    with pytest.raises(ValueError, match="is not between"):
        pictures._at(100, (1, 3, 10))
