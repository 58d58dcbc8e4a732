"""Writes the pictures that the README opens with: `python -m docs.pictures`.

levels.svg shows a small model at every level, compiled here and now for fixed processors. speed.svg
is made of result files in benchmarks/. `tests/project/test_docs.py` checks that both are current.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent
BENCHMARKS = FOLDER.parent / "benchmarks"
GPU_MODELS = BENCHMARKS / "cuda" / "MODELS.md"
CPU_MODELS = BENCHMARKS / "contrast" / "figures.json"
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1b1f24; }
.code { font: 11px ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre; }
.soft { fill: #5b6570; } .head { font-weight: 600; } .small { font-size: 10px; }
.panel { fill: #f4f6f8; stroke: #d4d9de; } .rule { stroke: #d4d9de; } .one { stroke: #5b6570; }
.n0 { fill: #1f5fbf; } .n1 { fill: #a35200; } .n2 { fill: #1a7f43; }
.a { fill: #1f6fd9; } .b { fill: #d98c1f; } .c { fill: #8a929b; } .d { fill: #c8402f; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e8ec; } .soft { fill: #9aa5b1; } .panel { fill: #1d232a; stroke: #333b44; }
  .rule { stroke: #333b44; } .one { stroke: #9aa5b1; }
  .n0 { fill: #7db2ff; } .n1 { fill: #f0b060; } .n2 { fill: #6fd398; }
}
"""


@dataclass
class Picture:
    """Shapes of an SVG, which has colours for light and for dark pages."""

    width: int
    title: str
    shapes: list[str] = field(default_factory=list[str])

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        self.shapes.append(f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}" '
                           f'xml:space="preserve">{escape(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        self.shapes.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
                           f'rx="3" class="{kind}"/>')

    def dot(self, x: float, y: float, kind: str, title: str) -> None:
        self.shapes.append(f'<circle cx="{x:g}" cy="{y:g}" r="4" class="{kind}">'
                           f"<title>{escape(title)}</title></circle>")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.shapes.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
                           f'class="{kind}"/>')

    def svg(self, height: float) -> str:
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" '
                f'height="{height:g}" viewBox="0 0 {self.width} {height:g}" role="img">')
        return "\n".join([head, f"<title>{escape(self.title)}</title>",
                          f"<style>{_STYLE}</style>", *self.shapes, "</svg>", ""])


# ---------------------------------------------------------------------- levels
NODES = ("product", "bias", "relu")
_LINE, _COLUMN, _GAP, _SIGNS = 15, 540, 14, 78
Lines = Sequence[tuple[str, int | None]]
"""Lines of a text, each with the number of the node that it stands for."""


def _model() -> bytes:
    """relu(x @ w + b)."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    weights = [numpy_helper.from_array(np.ones(shape, np.float32), name)
               for name, shape in (("w", (64, 32)), ("b", (32,)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name=NODES[0]),
             helper.make_node("Add", ["p", "b"], ["s"], name=NODES[1]),
             helper.make_node("Relu", ["s"], ["y"], name=NODES[2])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", [48, 64]), ("y", [48, 32])))
    graph = helper.make_graph(nodes, "m", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                             ir_version=8).SerializeToString()


def _history(target: str, features: str, level: str) -> tuple[dict[str, Lines], Lines]:
    """The model at every level, and its kernels in the target's code."""
    from compiler.frontend import MemoryModel
    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler
    from compiler.reporting.history import History
    from compiler.reporting.listings import Part, code_listing, listing
    from targets.walking import kernels_of

    history = History(changes=False)
    options = CompileOptions(target=target, features=features, threads=1, tuned="off", cache="off")
    compilation = Compiler(MemoryModel("m.onnx", _model()), options, [history])
    state = compilation.lower()
    code, index = compilation.emit(state, level), {name: k for k, name in enumerate(NODES)}
    names = [op.sym_name.data for op in kernels_of(state.module)]

    def lines(parts: Iterable[Part]) -> Lines:
        return [(line, nodes[-1] if nodes else None) for part in parts
                for line, nodes in zip(part.lines, part.nodes, strict=True)]

    return {title: lines(listing(text, index)) for title, text in history.texts}, lines(
        part for part in code_listing(code, names, index) if part.symbol)


def _between(lines: Lines, start: str, count: int) -> Lines:
    """Some lines from the first one that has a text; the last one says whether there are more."""
    at = next(k for k, (line, _) in enumerate(lines) if start in line)
    shown = list(lines[at:at + count])
    return shown if len(lines) <= at + count else [*shown[:-1], ("…", None)]


def levels_picture() -> str:
    levels, llvm = _history("cpu", "avx2", "llvm")
    triton = _history("cuda", "sm_90", "triton")[1]
    picture = Picture(2 * _COLUMN + 3 * _GAP, "relu(x @ w + b) at every level of Strata")
    picture.text(_GAP, 20, "relu(x @ w + b) at every level; its nodes:", "head")
    for k, name in enumerate(NODES):
        picture.text(_GAP + 290 + 65 * k, 20, name, f"n{k} head")
    left, right = (_GAP, 34.0), (2 * _GAP + _COLUMN, 34.0)
    for title, lines in (
            ("graph: tensor operators", _between(levels["graph, as read"], "graph.", 7)),
            ("loop: nests in kernels, with their schedule", _between(
                levels["loop"], "loop.kernel", 16)),
            ("host: buffers and launches", _between(levels["host"], "host.func", 6)),
            ("LLVM IR for AVX2", [*llvm[:2], ("…", None), *_between(
                llvm, "fmul contract", 7)])):
        left = _panel(picture, left, title, lines)
    for title, lines in (
            ("block: tiles of one program", _between(levels["block"], "block.kernel", 23)),
            ("or Triton, for an NVIDIA GPU", _between(triton, "@triton.jit", 15))):
        right = _panel(picture, right, title, lines)
    return picture.svg(max(left[1], right[1]))


def _panel(
    picture: Picture, at: tuple[float, float], title: str, lines: Lines
) -> tuple[float, float]:
    """Draw a level, and return the place of the next one."""
    x, y = at
    height = _LINE * len(lines) + 34
    picture.box(x, y, _COLUMN, height, "panel")
    picture.text(x + 10, y + 18, title, "head")
    margin = min((len(t) - len(t.lstrip()) for t, _ in lines if t.strip() not in ("", "…")),
                 default=0)
    for k, (line, node) in enumerate(lines):
        text = line[margin:] if line != "…" else line
        text = text if len(text) <= _SIGNS else text[:_SIGNS - 1] + "…"
        picture.text(x + 10, y + 36 + _LINE * k, text, "code" if node is None else f"code n{node}")
    return x, y + height + _GAP


# ---------------------------------------------------------------------- speed
_LEFT, _WIDE, _ROW = 240, 560, 12
_GPU_TICKS, _CPU_TICKS = (0.3, 1, 3, 10), (1, 3, 10, 30)
_WAYS = (("whole-graph", "a"), ("block", "b"), ("per-op", "c"))


def gpu_rows() -> list[tuple[str, float]]:
    """Models on a GPU: how many times as fast as the fastest way of PyTorch."""
    lines = [line.strip("| \n").split(" | ") for line in
             GPU_MODELS.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    at = lines[0].index("best / door")
    rows = [(cells[0], float(cells[at])) for cells in lines[1:]
            if len(cells) > at and cells[at].strip()]
    return sorted(rows, key=lambda row: -row[1])


def cpu_rows() -> list[tuple[str, dict[str, float]]]:
    """Models on a CPU: how many times as fast as eager PyTorch, by strategy."""
    figures: dict[str, Any] = json.loads(CPU_MODELS.read_text(encoding="utf-8"))
    return [(name, {way: found["peers"]["torch"]["ms"][1] / found["strategies"][way]["ms"][1]
                    for way, _ in _WAYS}) for name, found in figures.items()]


def speed_picture() -> str:
    picture = Picture(_LEFT + _WIDE + 70, "Speed of Strata, compared with PyTorch")
    gpu, cpu = gpu_rows(), cpu_rows()
    device = next(line for line in GPU_MODELS.read_text(encoding="utf-8").splitlines()
                  if " On " in line).partition(" On ")[2].strip(" .")
    y = _scale(picture, 20, f"{device}, torch.compile: times as fast as the fastest way of PyTorch",
               _GPU_TICKS, len(gpu), f"geometric mean {mean(s for _, s in gpu):.2f}")
    for k, (name, speed) in enumerate(gpu):
        _row(picture, y + _ROW * k, name)
        picture.dot(_at(speed, _GPU_TICKS), y + _ROW * k - 4, "a", f"{name}: {speed:.2f}x")
    y = _scale(picture, y + _ROW * len(gpu) + 40,
               "One thread of a CPU: times as fast as eager PyTorch", _CPU_TICKS, len(cpu), "")
    for k, (name, speeds) in enumerate(cpu):
        _row(picture, y + _ROW * k, name)
        for way, kind in reversed(_WAYS):
            picture.dot(_at(speeds[way], _CPU_TICKS), y + _ROW * k - 4, kind,
                        f"{name}, {way}: {speeds[way]:.2f}x")
    y += _ROW * len(cpu) + 8
    for k, (way, kind) in enumerate(_WAYS):
        picture.dot(_LEFT + 110 * k, y + 12, kind, way)
        picture.text(_LEFT + 110 * k + 9, y + 16, way, "small")
    return picture.svg(y + 28)


def _scale(
    picture: Picture, y: float, title: str, ticks: Sequence[float], rows: int, note: str
) -> float:
    """Draw a title and a logarithmic scale; returns where the first row is."""
    picture.text(10, y, title, "head")
    picture.text(_LEFT + _WIDE + 60, y, note, "soft small", "end")
    for tick in ticks:
        x = _at(tick, ticks)
        picture.line(x, y + 26, x, y + 32 + _ROW * rows, "one" if tick == 1 else "rule")
        picture.text(x, y + 22, f"{tick:g}x", "soft small", "middle")
    return y + 42


def _row(picture: Picture, y: float, name: str) -> None:
    picture.text(_LEFT - 12, y, name, "small", "end")


def _at(value: float, ticks: Sequence[float]) -> float:
    """The place of a value between the first and the last tick. Raises ValueError for others."""
    if not ticks[0] <= value <= ticks[-1]:
        raise ValueError(f"{value} is not between {ticks[0]} and {ticks[-1]}")
    return round(_LEFT + _WIDE * math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0]), 1)


def mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs))


def pictures() -> Iterator[tuple[Path, str]]:
    """Each file and what it must hold."""
    yield FOLDER / "levels.svg", levels_picture()
    yield FOLDER / "speed.svg", speed_picture()


if __name__ == "__main__":
    for path, text in pictures():
        path.write_text(text, encoding="utf-8")
