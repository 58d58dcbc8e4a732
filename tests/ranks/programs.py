"""Small programs of several ranks: one collective operation between a product and a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.context import make_context
from dialects.ranks.collectives import REDUCTIONS, Collective
from dialects.strata.types import Array, dtype_of, element_of

_OPERATION = {"broadcast": "broadcast_ranks", "permute": "permute_ranks"}


@dataclass(frozen=True)
class Case:
    """A collective operation of a kind on elements, in groups `parts` of ranks."""

    kind: str
    element: str
    attributes: str = ""
    parts: tuple[tuple[int, ...], ...] = ((0, 1),)

    @property
    def size(self) -> int:
        return len(self.parts[0])

    @property
    def group(self) -> str:
        return f'#strata.group<"g", {[list(p) for p in self.parts]}>'

    @property
    def text(self) -> str:
        """A module with symbolic sizes: each rank has size * n rows of 3."""
        name, count = _OPERATION.get(self.kind, self.kind), self.size
        rows = {"all_gather": f"{count ** 2}*n", "reduce_scatter": "n", "shard": "n"}.get(
            self.kind, f"{count}*n")
        given, got = f"{self.element}[{count}*n, 3]", f"{self.element}[{rows}, 3]"
        attributes = f"{{{self.attributes}group = {self.group}}}"
        return f"""builtin.module {{
  strata.func @main(%x: {given}) -> ({got}, {got}) inputs ["x"] outputs ["y", "z"] {{
    %a = graph.add %x, %x : {given}
    %y = graph.{name} %a {attributes} : {got}
    %z = graph.add %y, %y : {got}
    strata.return %y, %z
  }}
}}
"""

    def module(self) -> ModuleOp:
        return Parser(make_context(), self.text).parse_module()

    def inputs(self, rank: int, rows: int) -> Array:
        """The input of a rank; small integers, so that sums are exact in any order."""
        numbers = np.random.default_rng(rank).integers(-3, 4, (self.size * rows, 3))
        return numbers.astype(element_dtype(self.element))

    def expected(self, rank: int, rows: int, how: Collective) -> list[Array]:
        """The outputs of a rank."""
        part = how.group.members(rank)
        given = [self.inputs(r, rows) for r in part]
        y = how.combine([a + a for a in given], part.index(rank))
        return [y, y + y]


def element_dtype(name: str) -> np.dtype[np.generic]:
    from dialects.strata.types import ELEMENTS

    found = next(e for e in ELEMENTS if str(e) == name)
    assert element_of(dtype_of(found)) == found
    return dtype_of(found)


def cases(parts: tuple[tuple[int, ...], ...], elements: Sequence[str]) -> list[Case]:
    """Every kind and reduction, on all elements that allow it."""
    size = len(parts[0])
    ring = ", ".join(f"{k}, {(k + 1) % size}" for k in range(size))
    kinds = [("all_gather", ""), ("shard", ""), ("all_to_all", ""),
             ("broadcast", f"root = {size - 1}, "), ("permute", f"pairs = [{ring}], "),
             ("permute", "pairs = [0, 1], ")]
    found = [Case(kind, e, attributes, parts) for kind, attributes in kinds for e in elements]
    for kind in ("all_reduce", "reduce_scatter"):
        found += [Case(kind, e, f'reduce = "{r}", ', parts) for r in REDUCTIONS for e in elements
                  if r != "avg" or "f" in e]
    return found


# ---------------------------------------------------------------------- sums of products
@dataclass(frozen=True)
class SummingCase:
    """Two products of matrices, each summed over `count` ranks. All numbers are small integers, so
    that sums are exact in any order."""

    rows: int
    depth: int
    columns: int
    element: str
    count: int

    @property
    def text(self) -> str:
        e, group = self.element, f'#strata.group<"g", [{[*range(self.count)]}]>'
        x, w, v, y = (f"{e}[{a}, {b}]" for a, b in (
            (self.rows, self.depth), (self.depth, self.columns), (self.columns, 40),
            (self.rows, self.columns)))
        return f"""builtin.module {{
  strata.func @main(%x: {x}, %w: {w}, %v: {v}) -> ({e}[{self.rows}, 40]) inputs ["x", "w", "v"] \
outputs ["z"] {{
    %a = graph.matmul %x, %w : {y}
    %b = graph.all_reduce %a {{reduce = "sum", group = {group}}} : {y}
    %c = graph.sign %b : {y}
    %d = graph.matmul %c, %v : {e}[{self.rows}, 40]
    %z = graph.all_reduce %d {{reduce = "sum", group = {group}}} : {e}[{self.rows}, 40]
    strata.return %z
  }}
}}
"""

    def inputs(self, rank: int, turn: int) -> list[Array]:
        """The inputs of a rank: sparse ones, so that a bf16 holds every sum."""
        rng = np.random.default_rng([rank, turn])
        sizes = (self.rows, self.depth), (self.depth, self.columns), (self.columns, 40)
        return [(rng.integers(-1, 2, s) * (rng.random(s) < 0.3)).astype(
            element_dtype(self.element)) for s in sizes]

    def expected(self, turn: int) -> Array:
        given = [[a.astype(np.float64) for a in self.inputs(r, turn)] for r in range(self.count)]
        between = np.sign(sum(x @ w for x, w, _ in given))
        return np.asarray(sum(between @ v for _, _, v in given))


def summing_cases(count: int) -> list[SummingCase]:
    """Products of one, few and many rows, with sizes that tiles do not divide."""
    sizes = [(1, 512, 4096), (1, 100, 1000), (3, 320, 777), (16, 256, 2048), (17, 64, 640),
             (130, 96, 512)]
    return [SummingCase(*s, e, count) for s in sizes for e in ("bf16", "f16", "f32")]
