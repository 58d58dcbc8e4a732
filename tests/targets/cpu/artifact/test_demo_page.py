"""The page for browsers that `compile --demo` writes: drawn, run and read in headless Chromium.

The tests of the page itself are skipped without playwright, a Chromium, or Zig.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import compiler
from compiler.__main__ import main
from targets.cpu.artifact.cross import zig_command
from targets.cpu.artifact.demo import page_text
from tests.browser import CHROMIUM, opened
from tests.targets.cpu.artifact.shipped import needs_tools

LABELS = ("left", "right", "</script><img src=x onerror=alert(1)>")


def model() -> onnx.ModelProto:
    """A classifier of a drawing, which is darker on one side; a text of symbols; a picture."""
    h = onnx.helper
    initial = {"half": np.float32([0.5]), "axes": np.int64([1, 2, 3]),
               "first": np.int64([0]), "middle": np.int64([8]), "all": np.int64([99]),
               "x_axis": np.int64([3]), "symbols": np.float32([[0, 1, 0, 0, 0], [0, 1, 0, 0, 0],
                                                               [1, 0, 0, 0, 0], [0, 1, 0, 0, 0],
                                                               [0, 0, 0, 0, 1], [0, 0, 1, 0, 0]])}
    nodes = [
        h.make_node("Slice", ["x", "first", "middle", "x_axis"], ["l"]),
        h.make_node("Slice", ["x", "middle", "all", "x_axis"], ["r"]),
        h.make_node("ReduceMean", ["l", "axes"], ["lm"], keepdims=0),
        h.make_node("ReduceMean", ["r", "axes"], ["rm"], keepdims=0),
        h.make_node("ReduceMin", ["x", "axes"], ["least"], keepdims=0),
        h.make_node("Cast", ["k"], ["kf"], to=1),
        h.make_node("Mul", ["least", "kf"], ["zero"]),
        h.make_node("Concat", ["lm", "rm", "zero"], ["row"], axis=0),
        h.make_node("Unsqueeze", ["row", "first"], ["y"]),
        h.make_node("Unsqueeze", ["symbols", "first"], ["s"]),
        h.make_node("Add", ["s", "zero"], ["t"]), h.make_node("Mul", ["x", "half"], ["z"])]
    info = h.make_tensor_value_info
    graph = h.make_graph(
        nodes, "halves", [info("x", 1, [1, 1, "h", 16]), info("k", 7, [1])],
        [info("y", 1, [1, 3]), info("t", 1, [1, 6, 5]), info("z", 1, [1, 1, "h", 16])],
        [onnx.numpy_helper.from_array(a, n) for n, a in initial.items()])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)


def test_labels_stay_text() -> None:
    page = page_text("a<b", b"\0asm", LABELS)
    assert page.count("<script") == page.count("</script>") == 3
    assert "<h1>a&lt;b</h1>" in page and "<img" not in page


@needs_tools
def test_a_page_needs_web_assembly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    assert main(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so"), "--demo"]) == 1
    assert "--triple wasm32" in capsys.readouterr().err
    assert main(["compile", str(tmp_path / "m.onnx"), "--target", "wasm", "--demo",
                 "-o", str(tmp_path / "m.wasm")]) == 0
    assert "<script" in (tmp_path / "m.html").read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.wasm"), "--labels",
                 str(tmp_path / "none.txt")]) == 1
    assert "none.txt" in capsys.readouterr().err


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not zig_command() or CHROMIUM is None:
        pytest.skip("there is no Zig or no Chromium")
    folder = tmp_path_factory.mktemp("demo")
    onnx.save(model(), folder / "halves.onnx")
    (folder / "labels.txt").write_text("\n".join(LABELS) + "\n", encoding="utf-8")
    assert main(["compile", str(folder / "halves.onnx"), "--triple", "wasm32", "--demo", "--labels",
                 str(folder / "labels.txt"), "-o", str(folder / "halves.wasm")]) == 0
    return folder / "halves.html"


@pytest.fixture
def page(file: Path) -> Generator[Any]:
    sync_api: Any = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with opened(browser, file, 900) as made:
            made.wait_for_selector("#run:enabled")
            yield made
        browser.close()


def draw(page: Any, share: float) -> None:
    """A stroke from top to bottom, at a share of the width."""
    box = page.locator("canvas").first.bounding_box()
    x = box["x"] + share * box["width"]
    page.mouse.move(x, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] - 5, steps=5)
    page.mouse.up()


def test_drawings_are_classified_as_in_this_process(page: Any) -> None:
    exe = compiler.compile(model())
    page.select_option("select", "0 to 1, inverted")
    page.fill("#size-h", "24")
    for share, side in ((0.2, "left"), (0.8, "right")):
        page.click("text=Clear")
        draw(page, share)
        page.click("#run")
        assert page.text_content("#status").endswith(" ms")
        assert page.locator(".class").first.text_content().startswith(f" {side}: ")
        given, found = (page.evaluate(
            f"Object.values(strata.{what}).map(a => [Array.from(a.data, Number), a.shape])")
            for what in ("given", "found"))
        inputs = [np.reshape(np.array(data, dtype), shape) for (data, shape), dtype in zip(
            given, (np.float32, np.int64), strict=True)]
        assert inputs[0].shape == (1, 1, 24, 16) and 0.05 < inputs[0].mean() < 0.5
        for (data, shape), wanted in zip(found, exe(*inputs), strict=True):
            np.testing.assert_allclose(np.reshape(data, shape), wanted, rtol=1e-5, atol=1e-6)


def test_texts_and_pictures_are_shown(page: Any) -> None:
    page.fill("textarea", "0")
    page.click("#run")
    assert page.text_content(".text") == "leftleft right"
    assert page.locator("#outputs canvas").count() == 1
    assert "</script>" in page.locator(".class").nth(2).text_content()


def test_what_does_not_fit_is_said(page: Any) -> None:
    page.fill("#size-h", "-3")
    page.click("#run")
    assert page.get_attribute("#status", "class") == "bad"
    assert page.text_content("#status")
