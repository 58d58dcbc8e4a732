"""Offsets near 2^31: what the emitted source computes in the last program of a large kernel.

The source runs in NumPy, whose integers wrap at 32 and 64 bits as Triton's do. Loads and stores
only note where they access memory: among the elements that the mask lets through, the last one must
be the buffer's last, and none may lie before its first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import pytest

from dialects.strata.types import Array, buffer_type
from targets.cuda.build.source import NARROW_ELEMENTS
from targets.cuda.emit import EmitOptions, emit_kernel
from tests.symbols import by_symbol
from tests.targets.cuda import samples
from tests.targets.cuda.samples import SAMPLES, Sample, kernel_of

BORDER = 2**31
SIZES = (NARROW_ELEMENTS, NARROW_ELEMENTS + 1, BORDER - 4096, BORDER - 1, BORDER, BORDER + 1,
         BORDER + 4096, 5 * 2**30 + 3)

FLAT = """
block.kernel @flat(%x: f32[{size}], %y: f32[{size}]) grid(%p: {size} ceildiv 1024)
    sizes({names}) {{
  %v = block.load %x[1024*%p + t0] check [0] pad 0.0 : tile<1024xf32>
  block.store %v, %y[1024*%p + t0] check [0]
  block.yield
}}"""
LOOP = """
block.kernel @loop(%x: f32[{size}], %y: f32[{size}]) grid(%p: {size} ceildiv 4096)
    sizes({names}) {{
  block.for %k = 4096*%p to min({size}, 4096*%p + 4096) step 1024 parallel {{
    %v = block.load %x[%k + t0] check [0] pad 0.0 : tile<1024xf32>
    block.store %v, %y[%k + t0] check [0]
    block.yield
  }}
  block.yield
}}"""
ROWS = """
block.kernel @rows(%x: f32[{rows}, 4096], %y: f32[{rows}, 4096]) grid(%p: {rows}, %q: 4)
    sizes({names}) {{
  %v = block.load %x[%p, 1024*%q + t0] : tile<1024xf32>
  block.store %v, %y[%p, 1024*%q + t0]
  block.yield
}}"""
TURNED = """
block.kernel @turned(%x: f32[{rows}, 4096], %y: f32[4096, {rows}])
    grid(%p: {rows} ceildiv 32, %q: 64) sizes({names}) {{
  %v = block.load %x[32*%p + t1, 64*%q + t0] check [0] pad 0.0 : tile<64x32xf32>
  block.store %v, %y[64*%q + t0, 32*%p + t1] check [1]
  block.yield
}}"""
SPLIT = """
block.kernel @split(%x: f32[{rows}, 4096], %y: f32[4096*{rows}])
    grid(%p: (4096*{rows}) ceildiv 1024) sizes({names}) {{
  %v = block.load %x[(1024*%p + t0) floordiv 4096, (1024*%p + t0) mod 4096]
    check [0] pad 0.0 : tile<1024xf32>
  block.store %v, %y[1024*%p + t0] check [0]
  block.yield
}}"""
GATHER = """
block.kernel @gather(%i: i32[4], %x: f32[{rows}, 4096], %y: f32[4, 4096])
    grid(%p: 4) sizes({names}) {{
  %k = block.load %i[%p] : tile<i32>
  %v = block.load %x[%k, t0] with %k[] : tile<4096xf32>
  block.store %v, %y[%p, t0]
  block.yield
}}"""
KERNELS = {"flat": FLAT, "loop": LOOP, "rows": ROWS, "turned": TURNED, "split": SPLIT,
           "gather": GATHER}


class Argument(np.int32):
    """A size, or a program's number, as kernels get it."""

    def to(self, dtype: Any) -> Any:
        return dtype(self)


def numbers(start: Any, end: Any, step: int = 1) -> Iterator[Any]:
    """A loop's counter has the type of its bounds."""
    kind = np.result_type(start, end, np.int32)
    for number in range(int(start), int(end), step):
        yield kind.type(number)


@dataclass
class Memory:
    """A buffer: adding offsets to it names addresses. `content`: what every element is."""

    content: int = 0
    accessed: list[Array] = field(default_factory=list[Array])

    def __add__(self, offsets: Any) -> Access:
        return Access(self, np.asarray(offsets))


@dataclass
class Access:
    memory: Memory
    offsets: Array

    def note(self, mask: Any) -> Array:
        kept = self.offsets[np.broadcast_to(mask, self.offsets.shape)]
        self.memory.accessed.append(kept.astype(np.int64))
        return np.full(self.offsets.shape, self.memory.content, np.int32)


@dataclass
class Language:
    """What the kernels here call of Triton's language."""

    program: Argument
    int64, int32 = np.int64, np.int32
    minimum, maximum = np.minimum, np.maximum

    def program_id(self, _axis: int) -> Argument:
        return self.program

    def arange(self, start: int, end: int) -> Array:
        return np.arange(start, end, dtype=np.int32)

    def cast(self, value: Any, dtype: Any) -> Array:
        return np.asarray(value).astype(dtype)

    def full(self, _shape: list[int], value: Any, dtype: Any) -> Any:
        return dtype(value)

    def load(self, at: Access, mask: Any = True, other: Any = 0) -> Array:
        return at.note(mask)

    def store(self, at: Access, _value: Array, mask: Any = True) -> None:
        at.note(mask)


def last_program(text: str, options: EmitOptions, values: Mapping[str, int],
                 content: Mapping[str, int] | None = None) -> dict[str, Memory]:
    """What the last program of a kernel accesses, by buffer."""
    kernel = kernel_of(text)
    source = emit_kernel(kernel, options)
    programs = prod(int(e.evaluate(by_symbol(values))) for e in kernel.grid.data)
    language = Language(Argument(programs - 1))
    names: dict[str, Any] = {}
    exec(source.text.split("@triton.jit")[-1], {"tl": language, "range": numbers}, names)
    buffers = {b.name_hint or "": Memory((content or {}).get(b.name_hint or "", 0))
               for b in kernel.buffers}
    with np.errstate(over="ignore"):
        names[source.name](*buffers.values(), *(Argument(v) for v in values.values()))
    return buffers


def check(buffers: Mapping[str, Memory], size: int) -> None:
    for name in ("x", "y"):
        places = np.concatenate([a.ravel() for a in buffers[name].accessed])
        assert places.min() >= 0, f"%{name} is accessed before its beginning"
        if name == "x" or "i" not in buffers:
            assert places.max() == size - 1, f"the last element of %{name} is not accessed"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["flat", "loop"])
def test_one_long_dim(name: str, size: int) -> None:
    text = KERNELS[name].format(size=size, names="")
    check(last_program(text, EmitOptions(), {}), size)
    assert ("int64" in emit_kernel(kernel_of(text)).text) == (size > NARROW_ELEMENTS)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["rows", "turned", "split", "gather"])
def test_many_rows(name: str, size: int) -> None:
    rows = size // 4096
    text = KERNELS[name].format(rows=rows, names="")
    check(last_program(text, EmitOptions(), {}, {"i": rows - 1}), 4096 * rows)
    assert ("int64" in emit_kernel(kernel_of(text)).text) == (4096 * rows > NARROW_ELEMENTS)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KERNELS)
def test_open_sizes(name: str, size: int) -> None:
    """The launch says whether a buffer is large: positions along a product of sizes may be, too."""
    rows = size // 4096
    options = EmitOptions(wide=4096 * rows > NARROW_ELEMENTS)
    values = {"n": rows, "m": 4096}
    text = KERNELS[name].format(size="n*m", rows="n", names="n, m")
    check(last_program(text, options, values, {"i": rows - 1}), 4096 * rows)


@pytest.mark.parametrize("sample", SAMPLES, ids=[s.name for s in SAMPLES])
def test_every_sample_widens_its_program_id_and_sizes(sample: Sample) -> None:
    kernel = kernel_of(sample.text)
    text = emit_kernel(kernel, EmitOptions(wide=True)).text
    is_open = any(buffer_type(b).static_shape is None for b in kernel.buffers)
    assert text.count("tl.program_id(0)") == text.count("tl.program_id(0).to(tl.int64)") or (
        not is_open)
    for size in kernel.size_names:
        assert (f"{size.name} = {size.name}.to(tl.int64)" in text) == is_open


def test_small_kernels_stay_narrow() -> None:
    assert "int64" not in emit_kernel(kernel_of(samples.TRANSPOSE)).text
