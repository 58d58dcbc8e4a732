"""What is generated in docs/ is current."""

from __future__ import annotations

import pytest

from docs.operators import PAGE, page


def test_the_page_of_operators_is_current() -> None:
    """It depends on the installed onnx package; `make docs` writes it."""
    onnx = pytest.importorskip("onnx")
    if onnx.__version__ != "1.23.2":
        pytest.skip(f"the page is made with onnx 1.23.2, not {onnx.__version__}")
    assert PAGE.read_text(encoding="utf-8") == page()
