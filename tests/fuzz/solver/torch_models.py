"""Modules of PyTorch, drawn and solved as ONNX models are, and judged beside eager PyTorch.

A module goes through `torch.export` with the sizes that it leaves open, and through
`torch.compile(backend="strata")`. Right is the exported program in f64, within what rounding
explains, and what eager PyTorch computes, within that and a little more.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import z3

from compiler.diagnostics import StrataError
from compiler.frontend import model_of
from compiler.io.signature import signature_of
from compiler.io.structures import orders_of, permuted, structures_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, CompilerFault
from tests.fuzz.solver.build import contents
from tests.fuzz.solver.domains import numbers
from tests.fuzz.solver.draft import BF16, F32, F64, Array, Draft, Placeholder
from tests.fuzz.solver.generate import Unusable, fitting_solution
from tests.fuzz.solver.judge import Finding, Rule, compared, differs
from tests.fuzz.solver.pool import Outcome
from tests.fuzz.solver.torch_specs import SPECS, Program

MAIN = (F32, F32, F32, F64, BF16)
MOST_LINES = 9


@dataclass
class Drawn:
    """`source`: of the function; `feeds`: tensors by name, per set of sizes.

    `opened`: the dims of each input that stay open.
    """

    source: str
    module: torch.nn.Module
    names: list[str]
    opened: dict[str, list[int]]
    feeds: list[dict[str, torch.Tensor]] = field(default_factory=list)


class Drawing(torch.nn.Module):
    """The function, and its weights as buffers."""

    def __init__(self, function: Callable[..., Any], weights: Mapping[str, torch.Tensor]):
        super().__init__()
        self.function = function
        for name, tensor in weights.items():
            self.register_buffer(name, tensor)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


# ---------------------------------------------------------------------- drawing
def generate(number: int, seed: int = 0) -> Drawn:
    """Raises Unusable."""
    random = np.random.default_rng([number, seed, 2121])
    draft = Draft(random, 21, MAIN[int(random.integers(len(MAIN)))])
    program = Program(draft)
    specs, shares = list(SPECS), np.array(list(SPECS.values()))
    wanted = draft.integer(1, MOST_LINES)
    for _ in range(4 * wanted):
        if len(program.lines) >= wanted:
            break
        mark = len(program.lines)
        spec = specs[int(random.choice(len(specs), p=shares / shares.sum()))]
        if not draft.attempt(lambda _, spec=spec: spec(program)):
            del program.lines[mark:]
    if not program.lines:
        raise Unusable("no operator fits")
    return _drawn(program)


def _drawn(program: Program) -> Drawn:
    draft = program.draft
    solution = fitting_solution(draft)
    text = " ".join(line.template for line in program.lines)
    used = [p for p in draft.placeholders if p.value.name in _words(text)]
    inputs = [p for p in used if not p.fixed] or used[:1]
    weights = {p.value.name: _tensor(draft, p, solution) for p in used if p not in inputs}
    lines = [f"def drawn(self, {', '.join(p.value.name for p in inputs)}):",
             *(f"    {name} = self.{name}" for name in weights)]
    for line in program.lines:
        numbers_ = [contents(d, solution) for d in line.dims]
        lines.append(f"    {', '.join(line.results)} = {_filled(line.template, numbers_)}")
    last = [r for line in program.lines for r in line.results if r not in _words(text)]
    lines.append(f"    return ({', '.join(last or program.lines[-1].results)},)")
    source = "\n".join(lines)
    scope: dict[str, Any] = {"torch": torch, "F": F}
    exec(source, scope)
    module = Drawing(scope["drawn"], weights).eval()
    names = [p.value.name for p in inputs]
    feeds = [{p.value.name: _tensor(draft, p, found) for p in inputs}
             for found in [solution, *_other_sizes(program, inputs, used, solution)]]
    return Drawn(source, module, names, _opened(inputs) if len(feeds) > 1 else {}, feeds)


def _opened(inputs: list[Placeholder]) -> dict[str, list[int]]:
    """The dims of the inputs that are symbols."""
    return {p.value.name: [k for k, d in enumerate(p.value.shape)
                           if z3.is_const(d) and not z3.is_int_value(d)] for p in inputs}


def _other_sizes(
    program: Program, inputs: list[Placeholder], used: list[Placeholder], solution: z3.ModelRef
) -> list[z3.ModelRef]:
    """Other sizes of the inputs, for half of the modules, with all that the source says as it is.
    """
    draft = program.draft
    if draft.chance():
        return []
    solver = z3.Solver()
    solver.set("timeout", 500)
    stays = [d for line in program.lines for d in line.dims] + draft.pinned
    stays += [d for p in used if p not in inputs for d in p.value.shape]
    solver.add(*draft.demands, *(d == contents(d, solution) for d in stays if z3.is_expr(d)))
    solver.add(*(p.domain.bound >= contents(p.domain.bound, solution) for p in used
                 if z3.is_expr(p.domain.bound)))
    for symbol in {d for p in inputs for d in p.value.shape if z3.is_expr(d)}:
        solver.push()
        solver.add(symbol != contents(symbol, solution), symbol >= 2, symbol <= 12)
        if solver.check() != z3.sat:
            solver.pop()
    return [solver.model()] if solver.check() == z3.sat else []


def _filled(template: str, numbers_: list[int]) -> str:
    for k, number in enumerate(numbers_):
        template = template.replace(f"{{{k}}}", str(number))
    return template


def _words(text: str) -> set[str]:
    import re

    return set(re.findall(r"\b[pv]\d+\b", text))


def _tensor(draft: Draft, placeholder: Placeholder, solution: Any) -> torch.Tensor:
    value, domain = placeholder.value, placeholder.domain
    shape = tuple(contents(d, solution) for d in value.shape)
    array = numbers(draft.random, value.dtype, shape, domain, contents(domain.bound, solution),
                    False, 1.0)
    if value.dtype == BF16:
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(array))


# ---------------------------------------------------------------------- judging
def judge(drawn: Drawn, compiled: bool) -> Finding:
    """What is wrong with a module. `compiled`: try `torch.compile`, too."""
    feed = drawn.feeds[0]
    tensors = [feed[name] for name in drawn.names]
    with torch.no_grad():
        program = torch.export.export(drawn.module, tuple(tensors), dynamic_shapes=_dynamic(drawn))
    compilation = Compiler(model_of(program), CompileOptions(
        cache="off", threads=1, tuned="off"))
    try:
        state = compilation.read()
        module, weights = state.module.clone(), state.context.weights.copy()
        compilation.run(state, compilation.plan(state, None))
        loaded = compilation.load(state)
    except StrataError as error:
        return Finding("refused", str(error))
    except CompilerFault as error:
        return Finding("fault", str(error))
    types = list(signature_of(module).input_types)
    for number, feed in enumerate(drawn.feeds):
        tensors = [feed[name] for name in drawn.names]
        shapes = [a.shape for a in _stored(map(_array, tensors), loaded.input_names, module)]
        if number and not _fit(shapes, types):
            break  # PyTorch has taken a size for a constant
        if number and not _accepted(program, tensors):
            continue
        found = _judge_feed(drawn, _Exported(module, weights, loaded), tensors,
                            compiled and not number)
        if found:
            return Finding(found.kind, found.text, number)
    return Finding()


@dataclass
class _Exported:
    """An imported program, and its code."""

    module: Any
    weights: Any
    loaded: Any

    @property
    def names(self) -> list[str]:
        return list(self.loaded.output_names)

    def outputs(self, tensors: Iterable[torch.Tensor]) -> list[Array]:
        """Results as the program stores them."""
        return _stored(map(_array, tensors), self.names, self.module)


def _stored(arrays: Iterable[Array], names: Sequence[str], module: Any) -> list[Array]:
    """Arrays with their dims in the order of memory, as an exported program takes them."""
    orders = orders_of(structures_of(module))
    return [np.array(permuted(array, orders.get(name)), order="C")
            for array, name in zip(arrays, names, strict=True)]


def _judge_feed(
    drawn: Drawn, exported: _Exported, tensors: list[torch.Tensor], compiled: bool
) -> Finding:
    loaded, names = exported.loaded, exported.names
    with torch.no_grad():
        eager = exported.outputs(drawn.module(*(t.clone() for t in tensors)))
    inputs = _stored(map(_array, tensors), loaded.input_names, exported.module)
    found, allowance = compared(exported.module, exported.weights, loaded, inputs, Rule())
    if found or allowance is None:
        return found
    text = differs(eager, allowance.native, allowance, names, Rule(peer=True))
    if text:
        return Finding("peer", text)
    return _judge_compiled(drawn, tensors, allowance, exported) if compiled else Finding()


def _dynamic(drawn: Drawn) -> Any:
    """What `torch.export` is told of the inputs' dims."""
    auto = torch.export.Dim.AUTO
    return (tuple(dict.fromkeys(drawn.opened.get(n, ()), auto) for n in drawn.names),)


def _fit(shapes: Sequence[Sequence[int]], types: list[Any]) -> bool:
    """Whether the sizes that the exported program holds for constants are these."""
    pairs = [pair for shape, type_ in zip(shapes, types, strict=True)
             for pair in zip(type_.shape, shape, strict=True)]
    return all(e.constant in (None, n) for e, n in pairs)


def _accepted(program: Any, tensors: list[torch.Tensor]) -> bool:
    """Whether PyTorch itself runs the exported program at these sizes: its guards may not hold."""
    try:
        with torch.no_grad():
            program.module()(*(t.clone() for t in tensors))
    except AssertionError as error:
        return "Guard failed" not in str(error)
    return True


def _judge_compiled(
    drawn: Drawn, tensors: Any, allowance: Any, exported: _Exported
) -> Finding:
    torch._dynamo.reset()
    try:
        with torch.no_grad():
            found = torch.compile(drawn.module, backend="strata")(*(t.clone() for t in tensors))
    except Exception as error:
        return Finding("fault", f"torch.compile: {type(error).__name__}: {error}")
    text = differs(exported.outputs(found), allowance.native, allowance, exported.names, Rule())
    return Finding("wrong", f"torch.compile: {text}") if text else Finding()


def _array(tensor: torch.Tensor) -> Array:
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy().astype(BF16)
    return tensor.contiguous().numpy().copy()


def work(number: int, seed: int) -> Outcome:
    """Draw and judge one module."""
    started = time.monotonic()
    logging.getLogger("torch").setLevel(logging.ERROR)  # it warns of every size that is 1
    try:
        drawn = generate(number, seed)
    except Unusable as reason:
        return Outcome(number, "unusable", str(reason))
    try:
        found = judge(drawn, compiled=number % 4 == 0)
        kind, text = found.kind, f"{found.text}\n{drawn.source}" if found else ""
    except Exception:
        kind, text = "harness", f"{drawn.source}\n{traceback.format_exc()}"
    return Outcome(number, kind, text, ("torch",), time.monotonic() - started,
                   len(drawn.feeds))
