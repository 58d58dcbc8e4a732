"""Attention as one kernel that holds blocks of rows: at every level and as native code, against
float64, for odd sizes, masks, NaN and infinities, other types, open sizes and threads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects import block
from dialects.loop import KernelOp
from dialects.strata.types import Array, BufferType
from dialects.verifying import verify
from passes.analyses.loop.private import private_values
from passes.base import StrataContext
from targets.base import TargetOptions, find_target
from targets.cpu.machine import AVX512, Machine
from tests.lowering import assert_close, check_levels, lower
from tests.symbols import by_symbol
from tests.targets.cpu import cpu_kernels
from tests.targets.cpu.cpu_kernels import each_machine

TOLERANCES = {"f16": 5e-3, "f32": 5e-6, "f64": 1e-12}


@dataclass(frozen=True)
class Attention:
    """softmax(q k^T + mask) v. `mask`: none, "add" for every row and key, "keys" for every key, or
    "where" by truth values. Heads of k and v are the queries', or 1. `guard`: 0 in place of NaN.
    """

    batch: int = 1
    heads: int = 2
    rows: int = 37
    keys: int = 29
    depth: int = 8
    key_heads: int = 2
    mask: str = "none"
    element: str = "f32"
    guard: bool = False
    open: bool = False

    @property
    def dtype(self) -> np.dtype[np.floating]:
        return np.dtype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[self.element])

    def module(self, context: StrataContext) -> ModuleOp:
        b, h, s, t = ("b", self.heads, "s", "s") if self.open else (
            self.batch, self.heads, self.rows, self.keys)
        d, g, e = self.depth, self.key_heads, self.element
        masks = {"none": "", "add": f", %m: {e}[{s}, {t}]", "keys": f", %m: {e}[{b}, 1, 1, {t}]",
                 "where": f", %m: i1[{s}, {t}], %low: {e}[1]"}
        names = [f'"{n}"' for n in self.names]
        lines = [
            f"%kt = graph.transpose %k {{perm = [0, 1, 3, 2]}} : {e}[{b}, {g}, {d}, {t}]",
            f"%s = graph.matmul %q, %kt : {e}[{b}, {h}, {s}, {t}]"]
        if self.mask == "where":
            lines.append(f"%a = graph.where %m, %s, %low : {e}[{b}, {h}, {s}, {t}]")
        elif self.mask != "none":
            lines.append(f"%a = graph.add %s, %m : {e}[{b}, {h}, {s}, {t}]")
        scores = "%s" if self.mask == "none" else "%a"
        lines.append(f"%p = graph.softmax {scores} {{axis = 3}} : {e}[{b}, {h}, {s}, {t}]")
        if self.guard:
            lines += [f"%n = graph.isnan %p : i1[{b}, {h}, {s}, {t}]",
                      f"%z = graph.constant {{value = literal[0.0]}} : {e}[1]",
                      f"%g = graph.where %n, %z, %p : {e}[{b}, {h}, {s}, {t}]"]
        lines += [f"%y = graph.matmul {'%g' if self.guard else '%p'}, %v : {e}[{b}, {h}, {s}, {d}]",
                  "strata.return %y"]
        text = (f"strata.func @main(%q: {e}[{b}, {h}, {s}, {d}], %k: {e}[{b}, {g}, {t}, {d}], "
                f"%v: {e}[{b}, {g}, {t}, {d}]{masks[self.mask]}) -> ({e}[{b}, {h}, {s}, {d}]) "
                f'inputs [{", ".join(names)}] outputs ["y"] {{\n' + "\n".join(lines) + "\n}")
        module = Parser(context, text).parse_module()
        verify(module)
        return module

    @property
    def names(self) -> list[str]:
        return ["q", "k", "v", *([] if self.mask == "none" else ["m"]),
                *(["low"] if self.mask == "where" else [])]

    def inputs(self) -> list[Array]:
        rng = np.random.default_rng(5)
        q, k, v = (rng.standard_normal((self.batch, h, n, self.depth)).astype(self.dtype)
                   for h, n in ((self.heads, self.rows), (self.key_heads, self.keys),
                                (self.key_heads, self.keys)))
        if self.mask == "none":
            return [q, k, v]
        shape = (self.batch, 1, 1, self.keys) if self.mask == "keys" else (self.rows, self.keys)
        seen = rng.random(shape) < 0.7
        if self.mask == "where":
            seen[3:4] = False
            return [q, k, v, seen, np.array([-np.inf], self.dtype)]
        mask = np.where(seen, rng.standard_normal(shape), -np.inf).astype(self.dtype)
        if self.mask == "add":
            mask[3:4] = -np.inf
        return [q, k, v, mask]

    def expected(self, inputs: list[Array]) -> Array:
        q, k, v = (x.astype(np.float64) for x in inputs[:3])
        with np.errstate(all="ignore"):
            scores = q @ k.transpose(0, 1, 3, 2)
            if self.mask == "where":
                scores = np.where(inputs[3], scores, inputs[4].astype(np.float64))
            elif self.mask != "none":
                scores = scores + inputs[3].astype(np.float64)
            e = np.exp(scores - scores.max(-1, keepdims=True))
            p = e / e.sum(-1, keepdims=True)
            return (np.where(np.isnan(p), 0, p) if self.guard else p) @ v


def native(case: Attention, inputs: list[Array], options: TargetOptions) -> Array:
    """The output of the CPU's code, for which all of the attention is one kernel."""
    target = find_target("cpu")
    context = target.bind(options).context()
    module = case.module(context)
    for step in lower(module, context):
        if step == "loop-schedule":
            [kernel] = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
            assert private_values(kernel)
    return target.bind(options).running.load(module, context.weights).run(inputs)[0]


def check(case: Attention, inputs: list[Array] | None = None, features: str | None = None) -> None:
    inputs = case.inputs() if inputs is None else inputs
    got = native(case, inputs, TargetOptions(features=features, threads=2))
    want = case.expected(inputs).astype(case.dtype)
    assert got.dtype == case.dtype
    assert_close([got], [want], TOLERANCES[case.element], str(case))


PLAIN = Attention()
CASES = [
    PLAIN,
    Attention(rows=17, keys=2, depth=3, key_heads=1),
    Attention(batch=2, heads=3, key_heads=3, rows=16, keys=67, depth=5),
    Attention(heads=1, key_heads=1, rows=64, keys=128, depth=64),
    Attention(rows=197, keys=131, depth=36, mask="add"),
    Attention(rows=33, keys=77, depth=128, key_heads=1, mask="keys"),
    Attention(rows=31, keys=31, depth=16, mask="where", guard=True),
    Attention(batch=2, rows=45, keys=45, mask="where"),
    Attention(heads=1, key_heads=1, rows=32, keys=2500, depth=4),  # too much for the stack
    Attention(rows=45, keys=45, mask="add", element="f64"),
    Attention(rows=45, keys=30, mask="add", element="f16"),
]


@each_machine
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(case: Attention, features: str) -> None:
    check(case, features=features)


@pytest.mark.parametrize("case", [CASES[2], CASES[6], replace(PLAIN, open=True, keys=37)], ids=str)
def test_every_level_computes_it(case: Attention) -> None:
    context = find_target("cpu").bind(TargetOptions()).context()
    inputs = case.inputs()
    want = case.expected(inputs).astype(case.dtype)
    check_levels(case.module(context), context, inputs, [want], TOLERANCES[case.element], set())


@each_machine
@pytest.mark.parametrize("case", [CASES[2], CASES[4], replace(PLAIN, open=True, keys=37)], ids=str)
def test_nothing_outside_is_touched(case: Attention, features: str) -> None:
    options = TargetOptions(features=features)
    context = find_target("cpu").bind(options).context()
    module = case.module(context)
    for _ in lower(module, context):
        pass
    [kernel] = [op for op in module.body.block.ops if isinstance(op, block.KernelOp)]
    sizes = by_symbol({"b": case.batch, "s": case.rows})
    given = dict(zip(case.names, case.inputs(), strict=True))
    given["y"] = np.full_like(given["q"], 77)
    shapes = [tuple(int(e.evaluate(sizes)) for e in b.type.shape) for b in kernel.buffers
              if isinstance(b.type, BufferType)]
    buffers = [given[b.name_hint or ""].reshape(shape)
               for b, shape in zip(kernel.buffers, shapes, strict=True)]
    cpu_kernels.check(str(kernel), *buffers, features=features, tolerance=1e-5,
                      **{name.text: sizes[name] for name in kernel.size_names})


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("position", range(3))
def test_numbers_that_are_none(number: float, position: int) -> None:
    """One in a query spoils its row, one in a key or value the rows of its head."""
    case = replace(PLAIN, rows=40)
    inputs = case.inputs()
    inputs[position][0, 1, 20, 3] = number
    check(case, inputs)


@pytest.mark.parametrize("mask", ["none", "add", "keys"])
def test_open_sizes(mask: str) -> None:
    """One program for every length, also shorter than a block of rows."""
    options, target = TargetOptions(threads=2), find_target("cpu")
    context = target.bind(options).context()
    case = Attention(mask=mask, open=True)
    module = case.module(context)
    for _ in lower(module, context):
        pass
    loaded = target.bind(options).running.load(module, context.weights)
    for batch, size in ((1, 1), (2, 5), (1, 16), (3, 37), (1, 130)):
        this = replace(case, batch=batch, rows=size, keys=size)
        inputs = this.inputs()
        want = this.expected(inputs).astype(np.float32)
        assert_close(loaded.run(inputs), [want], TOLERANCES["f32"], str(this))


def test_few_rows_keep_kernels_of_their_own() -> None:
    """A decoding step: one row would leave most lanes without work."""
    context = find_target("cpu").bind(TargetOptions()).context()
    module = replace(PLAIN, rows=4).module(context)
    for step in lower(module, context):
        if step == "loop-schedule":
            assert len([op for op in module.body.block.ops if isinstance(op, KernelOp)]) > 2


@pytest.mark.parametrize(("cpu", "element", "keys", "joined"), [
    ("znver4", "bf16", 29, False), ("znver4", "f32", 29, True),
    ("sapphirerapids", "bf16", 29, True), ("znver4", "bf16", 1 << 20, True)])
def test_bf16_dot_instructions_keep_kernels_apart(
    cpu: str, element: str, keys: int, joined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they do twice the work, and scores in memory are not huge."""
    machine = Machine(cpu, "", AVX512 | {"avx512bf16"}, "x86_64", (1 << 15, 1 << 20, 1 << 30), 1)
    monkeypatch.setattr("targets.cpu.stated.machine_of", lambda *_: machine)
    context = find_target("cpu").bind(TargetOptions()).context()
    module = Attention(rows=64, keys=keys, depth=64, element=element).module(context)
    for step in lower(module, context):
        if step == "loop-join-rows":
            break
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    assert any(map(private_values, kernels)) == joined
