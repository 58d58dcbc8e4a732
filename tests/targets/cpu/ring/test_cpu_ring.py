"""The CPU's code in the ring: bit for bit what its blocks mean; and faults too small else."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from xdsl.dialects import arith

from compiler.frontend import MemoryModel
from compiler.instrument.ring import mantissa_of
from compiler.instrument.ring_code import fault_of_code
from compiler.io.signature import signature_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.semantics.ring import Ring
from dialects.strata import types as t
from targets.cpu.emit import kernel as emission
from targets.cpu.emit import maps
from targets.cpu.emit.compute import Compute
from targets.cpu.emit.memory import Memory
from targets.cpu.emit.products import Products
from targets.cpu.emit.values import Reg
from targets.cpu.machine import lacking
from targets.cpu.ring import program
from targets.cpu.ring.builder import RingBuilder
from targets.reference.interpret import interpret
from tests.counts import models
from tests.counts.count import Subject

MODEL = """<ir_version: 10, opset_import: ["": 17]>
small (float[5, 67] x, float[5, 67] r) => (float[5, 37] y, float[5, 67] z) <float c = {0.75}> {
  [norm] n = LayerNormalization(x, g)
  [product] m = MatMul(n, w)
  [bend] e = Tanh(m)
  [scale] s = Mul(e, c)
  [weigh] p = Softmax(r)
  [weighed] q = MatMul(p, w)
  [sum] y = Add(s, q)
  [move] z = Sub(x, r)
}"""


def small() -> bytes:
    """The last of 67 terms of each product is tiny."""
    proto = onnx.parser.parse_model(MODEL)
    weight = np.random.default_rng(3).standard_normal((67, 37)).astype(np.float32)
    weight[-1] *= 1e-9
    for name, array in (("w", weight), ("g", np.ones(67, np.float32))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto.SerializeToString()


def told(model: bytes, features: str = "avx2", seed: int = 0) -> str | None:
    """What is wrong with the code of a model in the ring, with these vectors if there are any."""
    options = CompileOptions(features=None if lacking(features) else features, tuned="off",
                             cache="off", threads=1)
    compilation = Compiler(MemoryModel("m.onnx", model), options)
    state = compilation.prepare()
    signature, random = signature_of(state.module), np.random.default_rng(seed)
    ring = Ring(mantissa_of(state.module), seed)
    sizes = {s: 4 for s in signature.symbols()}
    inputs = []
    for name, type_ in zip(signature.input_names, signature.input_types, strict=True):
        array = signature.random_input(name, seed, [int(e.evaluate(sizes)) for e in type_.shape])
        is_float = t.is_float(t.element_of(array.dtype))
        inputs.append(ring.random(array, random) if is_float else ring.wrap(array))
    module, weights = state.module, state.context.weights
    wanted = interpret(module, weights, [x.copy() for x in inputs], ring)
    return fault_of_code(module, weights, compilation.parts.running, ring, inputs,
                         [ring.wrap(np.asarray(x)) for x in wanted])


@pytest.mark.parametrize("make", [
    models.cnn, models.halves, models.quantized, models.control, models.upsampling, models.experts,
    pytest.param(models.attention, marks=pytest.mark.slow),
    pytest.param(models.transformer, marks=pytest.mark.slow),
    pytest.param(models.lstm, marks=pytest.mark.slow),
    pytest.param(models.groups, marks=pytest.mark.slow)], ids=lambda make: make.__name__)
def test_code_computes_what_blocks_mean(make: Callable[[], Subject]) -> None:
    assert told(make().model.SerializeToString()) == ""


@pytest.mark.parametrize("features", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("seed", [0, 1])
def test_vectors_of_every_length(features: str, seed: int) -> None:
    if missing := lacking(features):
        pytest.skip(f"this processor lacks {', '.join(sorted(missing))}")
    assert told(small(), features, seed=seed) == ""


def test_plain_code_has_no_calls_back() -> None:
    compilation = Compiler(MemoryModel("m.onnx", small()), CompileOptions(features="avx2"))
    assert "inttoptr (i64" not in compilation.emit(compilation.lower(), "llvm")


# ---------------------------------------------------------------------- planted faults
STEP = 1 + 2.0**-23


def constants(patch: pytest.MonkeyPatch) -> None:
    """Literals have another last digit."""
    number = RingBuilder.number

    def wrong(self: RingBuilder, value: Any, element: Any) -> Any:
        return number(self, value * STEP if value == 0.75 else value, element)

    patch.setattr(RingBuilder, "number", wrong)
    patch.setattr(program, "_residues", lambda array, ring, plain=program._residues: plain(
        array * np.float32(STEP) if array.size == 1 else array, ring))


def initial(patch: pytest.MonkeyPatch) -> None:
    """Sums begin with something tiny."""
    full = Compute.full
    patch.setattr(Compute, "full", lambda self, value, type_: full(
        self, 1e-12 if value == 0 and t.is_float(type_.element) else value, type_))


def store(patch: pytest.MonkeyPatch) -> None:
    """The last register of a tile is stored with the contents of the first one."""
    plain = Memory.store

    def wrong(self: Memory, access: Any, tile: Any) -> None:
        regs = tile.regs
        same = len({c.width for c in tile.chunks}) == 1 and len(regs) > 1
        plain(self, access, replace(tile, regs=(*regs[:-1], regs[0])) if same else tile)

    patch.setattr(Memory, "store", wrong)


def term(patch: pytest.MonkeyPatch) -> None:
    """The last step of a sum of products is left out, which is tiny."""
    counted = emission._KernelEmitter._counted_loop

    def short(self: Any, op: Any, lower: Any, trips: int, *more: Any) -> Any:
        return counted(self, op, lower, trips - (trips > 60), *more)

    patch.setattr(emission._KernelEmitter, "_counted_loop", short)


def rest(patch: pytest.MonkeyPatch) -> None:
    """One register of many is not added."""
    tree = Compute._tree
    patch.setattr(Compute, "_tree", lambda self, combiner, regs: tree(
        self, combiner, regs[:-1] if len(regs) > 2 else regs))


def twice(patch: pytest.MonkeyPatch) -> None:
    """Halves of a vector are combined with themselves."""
    cut = Compute._slice
    patch.setattr(Compute, "_slice", lambda self, reg, start, width: cut(
        self, reg, 0 if width == 1 else start, width))


def neighbour(patch: pytest.MonkeyPatch) -> None:
    """The last position of a tile has the operands of the first one."""
    written = maps.Maps._written_out
    patch.setattr(maps.Maps, "_written_out", lambda self, body, rows, parts: written(
        self, body, [*rows[:-1], rows[0]] if len(rows) > 1 else rows, parts))


def order(patch: pytest.MonkeyPatch) -> None:
    """The operands of a difference change places."""
    row = emission_rows()[arith.SubfOp]
    patch.setitem(emission_rows(), arith.SubfOp, lambda b, op, r: row(b, op, [r[1], r[0]]))


def factor(patch: pytest.MonkeyPatch) -> None:
    """Sums of rows are counted twice."""
    reduce = Compute.reduce

    def wrong(self: Compute, combiner: str, tile: Any, axis: int, result: Any) -> Any:
        found = reduce(self, combiner, tile, axis, result)
        if combiner != "add" or not t.is_float(result.element):
            return found
        count = len(found.chunks)
        regs = [Reg.of(r, result.element, found.chunks[k % count].width)
                for k, r in enumerate(found.regs)]
        return replace(found, regs=tuple(self.builder.mul(
            r, self.builder.constant(2.0, r)).name for r in regs))

    patch.setattr(Compute, "reduce", wrong)


def product(patch: pytest.MonkeyPatch) -> None:
    """Every 17th product of a sum is counted twice."""
    add, count = Products.add_product, [0]

    def wrong(self: Products, a: Reg, b: Reg, c: Reg, unsigned: Any) -> Reg:
        count[0] += 1
        found = add(self, a, b, c, unsigned)
        return add(self, a, b, found, unsigned) if count[0] % 17 == 0 else found

    patch.setattr(Products, "add_product", wrong)
    contracted, maps_count = RingBuilder.contracted, [0]

    def doubled(self: RingBuilder, operation: str, a: Reg, b: Reg) -> Reg:
        maps_count[0] += operation == "fmul"
        found = contracted(self, operation, a, b)
        return contracted(self, "fadd", found, found) if (
            operation == "fmul" and maps_count[0] % 17 == 0) else found

    patch.setattr(RingBuilder, "contracted", doubled)


def emission_rows() -> Any:
    from targets.cpu.emit import scalar

    return scalar.SCALAR_ROWS


@pytest.mark.parametrize("plant", [
    constants, initial, store, term, rest, twice, neighbour, order, factor, product],
    ids=lambda plant: plant.__name__)
def test_planted_faults_are_found_in_seconds(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    started = time.perf_counter()
    found = told(small())
    assert found and "its code computes other bits" in found, found
    if plant is not constants:  # which are wrong for each kernel alone as well
        assert "kernel @" in found and "block.store to %" in found and "node " in found, found
    assert time.perf_counter() - started < 60
