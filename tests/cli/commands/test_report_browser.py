"""A report in headless Chromium: every tab, clicks, keys, both themes, a phone and paper.

Skipped without the package playwright, or without a Chromium in $STRATA_CHROMIUM or on the path.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.__main__ import main
from tests.browser import CHROMIUM, opened, work_of
from tests.cli.commands.test_report import encoder
from tests.models.onnx_graph import OnnxGraph

sync_api: Any = pytest.importorskip("playwright.sync_api")
if CHROMIUM is None:
    pytest.skip("there is no Chromium", allow_module_level=True)
TABS = ("Overview", "Graph", "Kernels", "Memory", "Fusion", "Comparison", "Passes")
HOSTILE = "</script><img src=x onerror=alert(1)>"
FIGURES = Path(__file__).parents[3] / "benchmarks/contrast/figures.json"


def model() -> onnx.ModelProto:
    """Two blocks in modules, and a name that must stay text."""
    g = OnnxGraph({})
    y = g.input("x", np.float32, [16, 32])
    for _ in range(6):
        y = g.node("Softmax", g.node("MatMul", y, g.random_weight(32, 32)), axis=-1)
    made = g.model({"y": y})
    for k, node in enumerate(made.graph.node):
        node.name = f"/encoder/layer.{k // 6}/block.{k // 2}/{node.name}"
    made.graph.node[0].name = HOSTILE
    return made


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import json

    folder = tmp_path_factory.mktemp("report")
    onnx.save(model(), folder / "model.onnx")
    found = json.loads(FIGURES.read_text(encoding="utf-8"))["encoder"]
    (folder / "c.json").write_text(json.dumps({**found, "model": "model.onnx"}))
    assert main(["report", str(folder / "model.onnx"), "-o", str(folder / "r.html"), "--threads",
                 "1", "--seconds", "0.05", "--compare", str(folder / "c.json")]) == 0
    return folder / "r.html"


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Any, file: Path) -> Generator[Any]:
    with opened(browser, file, 1300) as made:
        yield made


def test_every_tab_opens(page: Any) -> None:
    for title in TABS:
        page.get_by_role("tab", name=title).click()
        panel = page.locator("[role=tabpanel]:visible")
        assert panel.count() == 1 and panel.locator("h2").count() >= 1, title
    for title, plots in (("Kernels", 1), ("Memory", 2), ("Comparison", 2)):
        page.get_by_role("tab", name=title).click()
        figures = page.locator("[role=tabpanel]:visible figure svg, [role=tabpanel]:visible figure")
        assert figures.count() >= plots, title


def test_a_node_is_shown_at_every_level(page: Any) -> None:
    page.get_by_role("tab", name="Graph").click()
    page.locator("#modules .module", has_text="encoder").first.click()
    while page.locator("#modules .node:not(.gone)").count() == 0:
        page.locator("#modules .module").first.click()
    page.locator("#modules .node:not(.gone)").first.click()
    levels = page.locator("#detail .level")
    sync_api.expect(levels).to_have_count(7)
    titles = [level.locator("h3").inner_text() for level in levels.all()]
    assert titles == ["graph, as read", "graph", "loop", "host", "block", "llvm", "asm"]
    for level in levels.all():
        assert level.locator("pre").count() or "as at the level before" in level.inner_text()
    assert levels.nth(2).locator(".on").count() and levels.nth(3).locator(".on").count()
    assert "define" in levels.nth(5).inner_text()


def test_hidden_lines_are_shown(page: Any) -> None:
    page.goto(page.url.partition("#")[0] + "#graph/node/%2Fencoder%2Flayer.1%2Fblock.3%2FMatMul_6")
    more = page.locator("#detail .more")
    sync_api.expect(more.first).to_be_visible()
    count, lines = more.count(), page.locator("#detail pre > div").count()
    more.first.click()
    assert more.count() == count - 1 and page.locator("#detail pre > div").count() > lines


def test_a_dot_leads_to_its_kernel(page: Any) -> None:
    page.get_by_role("tab", name="Kernels").click()
    page.locator("figure a circle").first.dispatch_event("click")
    sync_api.expect(page.locator("#detail h2")).to_be_visible()
    assert page.locator("#detail h2").inner_text() in page.locator("#panel-kernels").inner_text()
    page.locator("#panel-kernels th button", has_text="bytes").click()
    assert page.locator("#panel-kernels tbody tr").count() >= 2


def test_what_disturbed_the_times_is_told(page: Any) -> None:
    page.evaluate("facts.profile.notes = ['others had the processor']; redraw()")
    for title in ("Overview", "Kernels"):
        page.get_by_role("tab", name=title).click()
        told = page.locator("[role=tabpanel]:visible", has_text="others had the processor")
        sync_api.expect(told).to_have_count(1)


def test_reasons_open(page: Any) -> None:
    page.get_by_role("tab", name="Fusion").click()
    page.locator("#panel-fusion summary").first.click()
    sync_api.expect(page.locator("#panel-fusion details tbody tr").first).to_be_visible()
    page.locator("#panel-fusion input").fill("no such reason")
    assert page.locator("#panel-fusion details").count() == 0
    page.get_by_role("tab", name="Passes").click()
    page.locator("#panel-passes summary").first.click()
    sync_api.expect(page.locator("#panel-passes details pre").first).to_be_visible()


def test_keys_alone(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("softmax_3")
    assert page.locator("#found button").count() == 1
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#detail h2")).to_contain_text("Softmax_3")
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()
    page.locator("#tab-overview").focus()
    page.keyboard.press("ArrowRight")
    sync_api.expect(page.locator("#panel-graph")).to_be_visible()
    page.locator("#modules .module").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".crumbs button").count() == 2
    page.locator("#tab-graph").focus()
    page.keyboard.press("End")
    sync_api.expect(page.locator("#panel-passes")).to_be_visible()


def test_a_hostile_name_stays_text(page: Any) -> None:
    page.locator("#search").fill("onerror")
    page.locator("#found button").click()
    sync_api.expect(page.locator("#detail h2")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0


def test_an_address_of_nothing(page: Any) -> None:
    base = page.url.partition("#")[0]
    for address in ("#graph/node/nobody", "#nowhere", "#kernels/kernel/%E0%A4%A", "#graph/odd/x"):
        page.goto(base + address)
        sync_api.expect(page.locator("[role=tabpanel]:visible")).to_have_count(1)


def test_light_and_dark(page: Any) -> None:
    def back() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.emulate_media(color_scheme="dark")
    dark = back()
    page.get_by_role("tab", name="Kernels").click()
    page.locator("#theme").click()
    assert back() != dark
    assert page.locator("#panel-kernels figure svg").first.is_visible()


def test_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 380, "height": 700})
    page.reload()
    for title in TABS:
        page.get_by_role("tab", name=title).click()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 380, f"{title} is {wide} wide"


def test_paper(page: Any) -> None:
    """Everything is printed, whatever was opened."""
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("[role=tabpanel]:visible").count() == len(TABS)
    assert page.locator("[role=tablist]").is_hidden()


@pytest.fixture(scope="module", params=["modules", "flat"])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of 5,000 nodes, in modules or with names that say nothing of any."""
    folder, made = tmp_path_factory.mktemp("large"), encoder(420, 8)
    for k, node in enumerate(made.graph.node):
        node.name = f"node.{k}" if request.param == "flat" else (
            f"/encoder/layer.{k // 13}/{node.op_type}_{k}")
    assert len(made.graph.node) > 5000
    onnx.save(made, folder / "model.onnx")
    assert main(["report", str(folder / "model.onnx"), "-o", str(folder / "r.html"),
                 "--threads", "1", "--seconds", "0", "--no-changes"]) == 0
    return folder / "r.html"


@pytest.mark.slow
def test_5000_nodes_stay_usable(browser: Any, large: Path) -> None:
    """Nothing that a user does keeps the page busy for long, and no list shows thousands."""
    with opened(browser, large, 1300) as page:
        work = work_of(page)
        for title in TABS:
            page.get_by_role("tab", name=title).click()
            sync_api.expect(page.locator("[role=tabpanel]:visible")).to_have_count(1)
            assert work() < 4, title
        page.get_by_role("tab", name="Graph").click()
        while page.locator("#modules .node:not(.gone)").count() == 0:
            assert page.locator("#modules .module, #modules .node").count() < 300
            page.locator("#modules .module").first.click()
            assert work() < 4
        page.locator("#search").fill("4321")
        assert 0 < page.locator("#found button").count() <= 50
        page.locator("#found button").first.click()
        sync_api.expect(page.locator("#detail .level")).to_have_count(7)
        assert work() < 4
        assert page.locator("*").count() < 50_000
