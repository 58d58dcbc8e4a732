"""`report`: a page that holds everything, whatever nodes are called, and also if a model fails."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.frontend.origins import ModelNode
from compiler.reporting import page as pages
from compiler.reporting.facts import facts_of, finite, packed, unpacked
from compiler.reporting.modules import folded
from compiler.reporting.terminal import lines_of
from tests.cli.conftest import Run
from tests.counts import models
from tests.models.onnx_graph import OnnxGraph

pytest.importorskip("jinja2")
LIMIT = 5e6
HOSTILE = ("</script><script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "{{ 7 * 7 }}",
           "<!--<script>", "a\\b\\22c", "größe/ü\u2028x", "&lt;b&gt;", "](javascript:alert(1))")
"""Names that end a script, an attribute, a comment or a string, or mean something to a template."""
OWN = ("core.js", "listings.js", "modules.js", "kernels.js", "memory.js", "fusion.js",
       "compare.js", "passes.js", "start.js")
TABS = ("overview", "graph", "kernels", "memory", "fusion", "comparison", "passes")


class Parsed(HTMLParser):
    """The elements of a page, and the texts of its scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        at = len(self.elements) - 1
        self.texts[at] = self.texts.get(at, "") + data

    def text_of(self, wanted: str, **about: str) -> list[str]:
        return [self.texts.get(k, "") for k, (tag, has) in enumerate(self.elements)
                if tag == wanted and about.items() <= has.items()]

    @property
    def facts(self) -> dict[str, Any]:
        [text] = self.text_of("script", id="facts")
        return json.loads(text)


def hostile_model() -> onnx.ModelProto:
    g = OnnxGraph({})
    y = g.input("x", np.float32, [4, 8])
    for _ in HOSTILE:
        y = g.node("Softmax", g.node("MatMul", y, g.random_weight(8, 8)), axis=-1)
    model = g.model({"y": y})
    for name, node in zip(HOSTILE, model.graph.node[::2], strict=False):
        node.name = name
    return model


@pytest.fixture
def report(strata: Run, tmp_path: Path) -> Any:
    """The page of a model, and what the command said."""
    def make(model: Any, *words: object) -> tuple[Parsed, Any]:
        path = model
        if not isinstance(model, Path):
            path = tmp_path / "model.onnx"
            onnx.save(model, path)
        done = strata("report", path, "--threads", "1", "--seconds", "0", "-o", "r.html", *words)
        assert "Traceback" not in done.err
        return Parsed(Path("r.html").read_text(encoding="utf-8")), done

    return make


def test_the_page_holds_all(report: Any, small_model: Path) -> None:
    page, done = report(small_model, "--seconds", "0.02", "--input",
                        "in/x:0=16x8xf32=random", "--input", "rows=[0, 1]")
    assert done.status == 0, done.err
    facts = page.facts
    assert {n["name"] for n in facts["nodes"]} >= {"project", "normalize", "pick"}
    assert facts["kernels"] and all(k["ms"] > 0 and k["nodes"] for k in facts["kernels"])
    assert facts["profile"]["roofline"]["flops_per_s"] > 0
    assert facts["sizes"] == {"n": 16, "m": 2}
    roof = facts["profile"]["roofline"]
    for kernel in facts["kernels"]:  # counted at the sizes that are timed
        least = max(kernel["bytes"] / roof["bytes_per_s"], kernel["flops"] / roof["flops_per_s"])
        assert kernel["of_roofline"] == pytest.approx(1e3 * least / kernel["ms"], rel=1e-6)
    assert facts["pairs"] and facts["memory"]["timeline"] and facts["environment"]
    assert {p["name"] for p in facts["passes"]} >= {"graph-to-loop", "loop-fuse", "loop-to-block"}
    assert [t["title"] for t in facts["listings"]] == [
        "graph, as read", "graph", "loop", "host", "block", "llvm", "asm"]
    scripts = "\n".join(page.text_of("script"))
    assert re.findall(r'^tab\("(\w+)"', scripts, re.MULTILINE) == [*TABS[1:], TABS[0]]
    assert page.text_of("nav", role="tablist") and page.text_of("main", id="panels")


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_node_is_found_at_every_level(report: Any, small_model: Path, target: str) -> None:
    """In a line that stands for it, or in a kernel that computes it; kernels also in code."""
    if target == "cuda":
        pytest.importorskip("triton")
    words = ("--target", "cuda", "--features", "sm_90") if target == "cuda" else ()
    facts = report(small_model, "--dim", "n=16", *words)[0].facts
    assert {t["title"] for t in facts["listings"] if t["code"]} == (
        {"llvm", "asm"} if target == "cpu" else {"triton", "ptx", "sass"})
    for number, node in enumerate(facts["nodes"]):
        kernels = {facts["kernels"][k]["name"] for k in node["kernels"]}
        assert kernels
        for listing in facts["listings"]:
            parts = unpacked(listing["text"])
            if listing["code"]:
                assert kernels & {p["symbol"] for p in parts}, listing["title"]
            else:
                assert any(p.get("same") or any(number in nodes for nodes in p["nodes"])
                           for p in parts), listing["title"]


def test_nodes_are_folded_by_module() -> None:
    """By scopes where a model tells them, else by names; others are cut into runs."""
    nodes = [ModelNode("a", "Add", scope="m.layer.0"), ModelNode("b", "Mul", scope="m.layer.0.ffn"),
             ModelNode("/m/layer.1/c", "Add"), ModelNode("d", "Add", scope="m")]
    assert folded(nodes, range(4)) == [("m", [("layer", [("0", [0, 1]), 2]), 3])]
    plain = [ModelNode(f"n{k}", "Add") for k in range(100)]
    assert [t[0] for t in folded(plain, range(100)) if not isinstance(t, int)][:2] == [
        "n0 … n2", "n3 … n5"]


def test_the_page_needs_no_network(report: Any, small_model: Path) -> None:
    page, _ = report(small_model)
    [policy] = [about["content"] for tag, about in page.elements
                if about.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and policy.startswith("default-src 'none';")
    assert "http" not in policy and "connect-src" not in policy
    for _, about in page.elements:
        for key in ("src", "href", "action", "data"):
            assert about.get(key, "data:").startswith("data:"), about
    own = [(Path(pages.__file__).parent / "page" / name).read_text() for name in OWN]
    assert not any(re.search(r"fetch\(|XMLHttpRequest|import\(|innerHTML|eval\(", s) for s in own)
    assert tuple(pages.SCRIPTS) == OWN


def test_names_are_never_read_as_html(report: Any) -> None:
    page, done = report(hostile_model())
    assert done.status == 0, done.err
    assert {n["name"] for n in page.facts["nodes"]} >= set(HOSTILE)
    assert not [about for _, about in page.elements if "onerror" in about]
    plain, _ = report(models.cnn().model)
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert "{{ 7 * 7 }}" in "".join(page.text_of("pre"))


def test_equal_input_gives_the_same_page(report: Any, small_model: Path) -> None:
    texts = [json.dumps({**report(small_model, "--dim", "n=4")[0].facts, "passes": []})
             for _ in range(2)]
    assert texts[0] == texts[1]


def encoder(layers: int, side: int = 64) -> onnx.ModelProto:
    """Layers of a transformer with weights of their own."""
    g = OnnxGraph({})
    y = g.input("x", np.float32, [32, side])
    for _ in range(layers):
        q, k, v = (g.node("MatMul", y, g.random_weight(side, side)) for _ in range(3))
        across = g.node("Transpose", k, perm=[1, 0])
        scores = g.node("Softmax", g.node("MatMul", q, across), axis=-1)
        y = g.node("Add", y, g.node("MatMul", g.node("MatMul", scores, v),
                                    g.random_weight(side, side)))
        up = g.node("Relu", g.node("MatMul", y, g.random_weight(side, 4 * side)))
        y = g.node("Add", y, g.node("MatMul", up, g.random_weight(4 * side, side)))
    return g.model({"y": y})


def test_a_transformer_fits(report: Any) -> None:
    """Twelve layers, as in BERT-base; the page grows by less than 50 kB for each."""
    sizes = []
    for layers in (6, 12):
        page, done = report(encoder(layers))
        assert done.status == 0, done.err
        assert len(page.facts["nodes"]) >= 10 * layers
        sizes.append(Path("r.html").stat().st_size)
    assert sizes[1] < LIMIT
    assert sizes[1] - sizes[0] < 6 * 50_000


# ---------------------------------------------------------------------- failures
def test_a_model_that_cannot_be_imported(report: Any, small_model: Path, tmp_path: Path) -> None:
    model = onnx.load(small_model)
    model.graph.node[1].op_type = "NoSuchOperator"
    page, done = report(model)
    assert done.status == 1 and "NoSuchOperator" in done.err
    assert page.facts["failure"]["where"] == "import"
    [message] = [t for t in page.text_of("pre") if "NoSuchOperator" in t][:1]
    assert "normalize" in message
    assert page.facts["listings"] == [] and page.facts["kernels"] == []


FAILS = '''
from passes.base import PassError, StrataPass

class Fails(StrataPass):
    name = "fails"
    place = "after(loop-fuse)"

    def run(self, context, module):
        raise {error}
'''


@pytest.mark.parametrize("error, status", [
    ('PassError("fails", [("it was told to", "project")])', 1), ('KeyError("lost")', 1)])
def test_a_pass_that_fails(report: Any, small_model: Path, error: str, status: int) -> None:
    """The page shows the levels so far, the module that failed, and why."""
    Path("fails.py").write_text(FAILS.format(error=error))
    page, done = report(small_model, "--plugin", "fails.py", "--passes", "default,fails",
                        "--dim", "n=4")
    assert done.status == status, done.err
    facts = page.facts
    assert facts["failure"]["where"] == "fails" and facts["failure"]["message"] in done.err
    assert [t["title"] for t in facts["listings"]] == [
        "graph, as read", "graph", "loop, when it failed"]
    assert facts["passes"][-1]["name"] == "loop-fuse"
    assert {n["name"] for n in facts["nodes"]} >= {"project", "normalize", "pick"}


def test_code_that_cannot_be_made(
    report: Any, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from targets.cpu.target import CpuEmission

    def emit(self: Any, module: Any, level: str) -> str:
        raise ValueError("no code today")

    monkeypatch.setattr(CpuEmission, "emit", emit)
    page, done = report(small_model, "--dim", "n=4")
    assert done.status == 3
    assert page.facts["failure"]["where"] == "code of level llvm"
    assert page.facts["kernels"] and page.facts["listings"][-1]["title"] == "block"


def test_inputs_that_do_not_run_leave_no_times(report: Any, small_model: Path) -> None:
    page, done = report(small_model, "--seconds", "0.02", "--dim", "n=4", "--input", "rows=[99]")
    assert done.status == 0, done.err
    assert page.facts["profile"] is None and "no times" in page.facts["notes"][0]


@pytest.mark.parametrize("words, told", [
    (("-o", "nowhere/r.html"), "cannot write nowhere/r.html: there is no such folder"),
    (("-o", "."), "cannot write .: it is a folder"),
    (("--profile", "none.json"), "cannot read none.json"),
    (("--compare", "p.json"), "it lacks strategies, ablation, peers"),
    (("--compare", "other.json"), "other.json has figures of another model, bert.onnx"),
    (("--profile", "list.json"), "is not what --json writes")])
def test_bad_files_are_told_before_compiling(
    strata: Run, small_model: Path, words: tuple[str, ...], told: str
) -> None:
    Path("p.json").write_text('{"wall_ms": 1}')
    Path("other.json").write_text(
        '{"model": "bert.onnx", "strategies": {}, "ablation": [], "peers": {}}')
    Path("list.json").write_text("[]")
    done = strata("report", small_model, *words)
    assert done.status == 1 and told in done.err and "Traceback" not in done.err
    assert not Path("report.html").exists()


def test_without_the_template_engine(
    strata: Run, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = strata("report", small_model)
    assert done.status == 1 and 'pip install "strata-compiler[report]"' in done.err


# ---------------------------------------------------------------------- figures, and the terminal
def test_figures_of_other_commands_are_shown(report: Any, strata: Run, small_model: Path) -> None:
    figures = json.loads((Path(__file__).parents[3] / "benchmarks/contrast/figures.json").read_text(
        encoding="utf-8"))["chain"]
    Path("c.json").write_text(json.dumps({**figures, "model": str(small_model)}))
    strata("profile", small_model, "--dim", "n=16", "--input", "rows=[0]", "--threads", "1",
           "--seconds", "0.02", "--json", "p.json")
    profile = json.loads(Path("p.json").read_text())
    Path("p.json").write_text(json.dumps({**profile, "notes": ["a busy machine"]}))
    page, done = report(small_model, "--dim", "n=16", "--compare", "c.json", "--profile", "p.json",
                        "--terminal")
    assert done.status == 0, done.err
    assert page.facts["comparison"]["strategies"].keys() == figures["strategies"].keys()
    wall = json.loads(Path("p.json").read_text())["wall_ms"]
    assert page.facts["profile"]["wall_ms"] == wall
    assert all(k["ms"] is not None for k in page.facts["kernels"])
    for told in ("a busy machine", "whole-graph", "memory: an arena", "not fused", "passes:",
                 "environment"):
        assert told in done.out


def test_the_terminal_alone_writes_no_page(strata: Run, small_model: Path) -> None:
    done = strata("report", small_model, "--dim", "n=4", "--seconds", "0", "--terminal",
                  "--no-changes")
    assert done.status == 0, done.err
    assert "kernels: ms" in done.out and not Path("report.html").exists()


def test_numbers_that_json_lacks() -> None:
    assert finite({"a": [1.0, float("nan")], "b": (float("inf"), "x", None, 3)}) == {
        "a": [1.0, None], "b": [None, "x", None, 3]}
    assert unpacked(packed({"ü": [1, "</script>"]})) == {"ü": [1, "</script>"]}


def test_nothing_is_known_of_an_empty_model() -> None:
    """The text twin of facts without kernels, passes and memory."""
    from compiler.explaining.collect import Explanation
    from compiler.reporting.facts import Collected
    from compiler.reporting.history import History

    facts = facts_of(Collected("m", Explanation(target="cpu"), History(), failure=("import", "no")))
    assert "failed in import" in lines_of(facts)
    assert Parsed(pages.page(facts)).facts == facts
