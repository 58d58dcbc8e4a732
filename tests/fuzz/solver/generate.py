"""Model number k, always the same: drawn, solved, and written as ONNX.

`Generated` has the model and several sets of inputs, one for each set of sizes that Z3 found for
the dims that the model leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import z3
from onnx import defs

from tests.fuzz.solver.build import Builder, contents
from tests.fuzz.solver.domains import numbers
from tests.fuzz.solver.draft import (
    BF16,
    F16,
    F32,
    F64,
    I32,
    I64,
    INTS,
    Array,
    Dim,
    Domain,
    Draft,
    DType,
)
from tests.fuzz.solver.outline import outline
from tests.fuzz.solver.specs import (
    contrib,
    control,
    elementwise,
    indexing,
    movement,
    narrow,
    products,
    reductions,
)

Spec = Callable[[Draft], None]
SPECS: dict[Spec, float] = {
    **elementwise.SPECS, **movement.SPECS, **reductions.SPECS, **products.SPECS,
    **indexing.SPECS, **control.SPECS}
THEMES: dict[str, tuple[float, dict[Spec, float]]] = {
    "": (0.7, {}), "contrib": (0.12, contrib.SPECS), "narrow": (0.1, narrow.SPECS),
    "functions": (0.08, {})}
"""Kinds of models: the share of each, and operators of which it has about as many as of others."""
SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 31, 33)
FEW = (1, 2, 2, 3)
MAIN: tuple[tuple[DType, float], ...] = (
    (F32, 0.55), (F64, 0.07), (F16, 0.1), (BF16, 0.04), (I64, 0.07), (I32, 0.07))
OPSETS = (11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 19, 20, 21, 21, 22, 23)
LARGEST_TENSOR = 20_000
MOST_NODES = 10
MOST_SIZES = 3


class Unusable(Exception):
    """No model came of this number: Z3 gave up, or what it found is too large."""


@dataclass
class Generated:
    """A model and what to run it on: `feeds`, one per set of sizes."""

    number: int
    proto: onnx.ModelProto
    feeds: list[dict[str, Array]] = field(default_factory=list[dict[str, Array]])
    special: bool = False
    """Whether the inputs hold NaN, infinities and the like."""
    open_dims: int = 0


def theme_of(number: int, seed: int = 0) -> str:
    """The kind of a model. It comes from a stream of its own, so that new kinds leave most of the
    others as they are.
    """
    shares = np.array([share for share, _ in THEMES.values()])
    random = np.random.default_rng([number, seed, 1717])
    return list(THEMES)[int(random.choice(len(shares), p=shares / shares.sum()))]


def generate(number: int, seed: int = 0) -> Generated:
    """Raises Unusable."""
    random = np.random.default_rng([number, seed, 1616])
    special = bool(random.random() < 0.08)
    theme = theme_of(number, seed)
    draft = _drafted(random, special, theme)
    solution = fitting_solution(draft)
    constants = {p.value.name: _numbers(draft, p.domain, p.value.dtype, p.value.shape, solution,
                                        False)
                 for p in draft.placeholders if p.fixed}
    builder = Builder(draft, solution, constants)
    opened = _opened(draft, builder)
    proto = builder.model(opened)
    if theme == "functions" or (theme and draft.chance(0.15)):
        outline(proto, random)
    result = Generated(number, proto, special=special, open_dims=len(opened))
    for found in [solution, *_further(draft, builder, opened)]:
        result.feeds.append(_feeds(draft, proto, found, special))
    return result


# ---------------------------------------------------------------------- drawing
def _drafted(random: np.random.Generator, special: bool, theme: str) -> Draft:
    weights = np.array([w for _, w in MAIN] + [0.1])
    kind = int(random.choice(len(weights), p=weights / weights.sum()))
    main = MAIN[kind][0] if kind < len(MAIN) else INTS[int(random.integers(len(INTS)))]
    opset = min(int(random.choice(OPSETS)), defs.onnx_opset_version())
    if theme == "narrow":  # since when there are floats of 8 bits
        opset, main = max(opset, 19), BF16 if random.random() < 0.5 else F32
    draft = Draft(random, opset, main, smallest=0 if random.random() < 0.12 else 1,
                  special=special, weights=theme != "narrow")
    wanted, weighted = draft.integer(1, MOST_NODES), _weighted(theme)
    specs, shares = list(weighted), np.array(list(weighted.values()))
    for _ in range(4 * wanted):
        if len(draft.body.nodes) >= wanted:
            break
        draft.attempt(specs[int(random.choice(len(specs), p=shares / shares.sum()))])
    if not draft.body.nodes:
        raise Unusable("no operator fits")
    return draft


def _weighted(theme: str) -> dict[Spec, float]:
    """The specifications, and how often each is drawn."""
    _, more = THEMES[theme]
    factor = sum(SPECS.values()) / sum(more.values()) if more else 0.0
    return {**SPECS, **{spec: factor * share for spec, share in more.items()}}


def _solution(draft: Draft, sizes: Sequence[int]) -> z3.ModelRef:
    """Dims for the whole model, as varied as it allows."""
    order = [draft.dims[int(k)] for k in draft.random.permutation(len(draft.dims))]
    for dim in order:
        draft.solver.push()
        wanted = 0 if draft.smallest == 0 and draft.chance(0.12) else draft.choose(sizes)
        draft.solver.add(dim == wanted)
        if draft.solver.check() != z3.sat:
            draft.solver.pop()
    if draft.solver.check() != z3.sat:
        raise Unusable("Z3 knows no solution")
    return draft.solver.model()


def fitting_solution(draft: Draft) -> z3.ModelRef:
    """The same, with small dims where tensors become too large otherwise."""
    draft.demands = list(draft.solver.assertions())
    scopes = draft.solver.num_scopes()
    for sizes in (SIZES, FEW):
        solution = _solution(draft, sizes)
        if _fits(draft, solution):
            return solution
        draft.solver.pop(draft.solver.num_scopes() - scopes)
    raise Unusable("too large")


def _fits(draft: Draft, solution: z3.ModelRef) -> bool:
    return all(int(np.prod([contents(d, solution) for d in v.shape], dtype=np.int64))
               <= LARGEST_TENSOR for v in draft.values)


# ---------------------------------------------------------------------- open sizes
def _opened(draft: Draft, builder: Builder) -> dict[str, str]:
    """The symbols of inputs' dims that the model leaves open, and their names in the model."""
    pinned = {str(s) for dim in draft.pinned for s in _symbols(dim)}
    wanted = draft.chance(0.55)
    opened: dict[str, str] = {}
    for placeholder in builder.inputs:
        for dim in placeholder.value.shape:
            if isinstance(dim, int) or not z3.is_const(dim) or str(dim) in pinned:
                continue
            empty = contents(dim, builder.solution) == 0
            if str(dim) not in opened and (empty or (wanted and draft.chance(0.7))):
                opened[str(dim)] = f"n{len(opened)}"
    return opened


def _symbols(dim: Dim) -> list[z3.ExprRef]:
    if isinstance(dim, int):
        return []
    if z3.is_const(dim):
        return [] if z3.is_int_value(dim) else [dim]
    return [s for child in dim.children() for s in _symbols(child)]  # type: ignore[arg-type]


def _further(draft: Draft, builder: Builder, opened: dict[str, str]) -> list[z3.ModelRef]:
    """Other sizes for the open dims, with all else as it is in the file."""
    if not opened:
        return []
    solver = z3.Solver()
    solver.set("timeout", 500)
    solver.add(*draft.demands, *builder.fixed(opened))
    symbols = [z3.Int(name) for name in opened]
    _check_empty(builder, solver, symbols)
    found: list[z3.ModelRef] = []
    solver.add(z3.Or([s != builder.solution.eval(s, True) for s in symbols]))
    while len(found) < MOST_SIZES - 1 and solver.check() == z3.sat:
        _vary(draft, solver, symbols)
        if solver.check() != z3.sat:
            break
        found.append(solver.model())
        solver.add(z3.Or([s != found[-1].eval(s, True) for s in symbols]))
    return [m for m in found if _fits(draft, m)]


def _check_empty(builder: Builder, solver: z3.Solver, symbols: Sequence[z3.ArithRef]) -> None:
    """An open dim that fits no size but 0 is not taken: the compiler holds it for 1 or more."""
    for symbol in symbols:
        if contents(symbol, builder.solution) == 0 and solver.check(symbol != 0) != z3.sat:
            raise Unusable("an open dim that must be 0")


def _vary(draft: Draft, solver: z3.Solver, symbols: Sequence[z3.ArithRef]) -> None:
    """Wish for other sizes, one symbol after another."""
    solver.push()
    for symbol in symbols:
        solver.push()
        solver.add(symbol == draft.choose((1, 2, 3, 5, 7, 12, 19)))
        if solver.check() != z3.sat:
            solver.pop()


# ---------------------------------------------------------------------- numbers
def _numbers(
    draft: Draft, domain: Domain, dtype: DType, shape: Sequence[Dim], solution: z3.ModelRef,
    special: bool,
) -> Array:
    sizes = tuple(contents(d, solution) for d in shape)
    return numbers(draft.random, dtype, sizes, domain, contents(domain.bound, solution), special,
                   float(draft.choose((1.0, 1.0, 0.25))))


def _feeds(
    draft: Draft, proto: onnx.ModelProto, solution: z3.ModelRef, special: bool
) -> dict[str, Array]:
    names = {i.name for i in proto.graph.input}
    return {p.value.name: _numbers(draft, p.domain, p.value.dtype, p.value.shape, solution,
                                   special)
            for p in draft.placeholders if p.value.name in names}


def describe(generated: Generated) -> str:
    """The model as text, and the shapes of its inputs."""
    shapes = [{n: f"{a.dtype}{list(a.shape)}" for n, a in feed.items()}
              for feed in generated.feeds]
    return f"{onnx.printer.to_text(generated.proto)}\n{shapes}"

