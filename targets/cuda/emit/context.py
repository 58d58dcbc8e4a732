"""The state of one kernel's emission: the text so far, and the Triton value of every SSA value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import SSAValue

from dialects.block import KernelOp, LoadOp
from dialects.strata.types import BufferType, SizesAttr, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import short_product
from dialects.symbolic.symbol import Symbol
from targets.cuda.build.source import NARROW_ELEMENTS
from targets.cuda.emit.helpers import HELPER_NAMES, Helper
from targets.cuda.emit.index import index_value, scaled, size_value
from targets.cuda.emit.specialized.early_loads import Early
from targets.cuda.emit.values import Shape, Value, broadcast, place
from targets.cuda.emit.writer import Writer
from targets.cuda.facts.fitted import EarlyLaunches


@dataclass(frozen=True)
class EmitOptions:
    """How a kernel is emitted.

    `interpreted`: for Triton's interpreter, which multiplies bfloat16 tiles wrongly and is slow at
    reductions with custom combiners. `wide`: buffers of symbolic size may hold more than
    `NARROW_ELEMENTS`, so their indices have 64 bits. `exact`: every operation rounds as it is
    defined, even if its result is soon rounded to f16 or bf16. `ptx`: the source may contain NVIDIA
    instructions.
    `constants`: the positions of buffers that nothing writes while the CUDA graph runs, for kernels
    with programmatic dependent launch (`specialized/early.py`); None: no such launch. `early`: how
    much such kernels load; needed with `constants`.
    """

    interpreted: bool = False
    wide: bool = False
    exact: bool = False
    ptx: bool = True
    constants: frozenset[int] | None = None
    early: EarlyLaunches | None = None

    @property
    def has_instructions(self) -> bool:
        """Whether the source may contain NVIDIA instructions and runs on a device."""
        return self.ptx and not self.interpreted


@dataclass
class Context:
    """State of emission; everything lives as long as the emission of one kernel."""

    kernel: KernelOp
    options: EmitOptions
    writer: Writer = field(default_factory=lambda: Writer(HELPER_NAMES))
    values: dict[SSAValue, Value] = field(default_factory=dict[SSAValue, Value])
    sizes: dict[Symbol, Value] = field(default_factory=dict[Symbol, Value])
    ranges: dict[int, str] = field(default_factory=dict[int, str])
    products: dict[str, str] = field(default_factory=dict[str, str])
    helpers: set[Helper] = field(default_factory=set[Helper])
    full: frozenset[SSAValue] = frozenset()
    """Values that are needed in full precision; see `rounding.py`."""
    stages: int = 1
    promote: int = 0
    """How many products of narrow floats may be summed with fewer bits than f32; 0: no limit."""
    native: frozenset[SSAValue] = frozenset()
    """Buffers of narrow floats that are loaded as such, since only products read them."""
    streamed: frozenset[LoadOp] = frozenset()
    """Loads that bypass the caches (see `specialized/streaming.py`)."""
    moving_pointers: bool = False
    """Whether loads in loops use pointers that advance with the loop, instead of new addresses."""
    branches: bool = False
    """Whether selections by indices are emitted in branches that most tiles skip."""
    descends: bool = False
    """Whether programs compute the tiles of the last grid axis in descending order."""
    loops: int = 0
    """The number of loops around the current position."""
    early: Early | None = None
    """What is emitted before a kernel waits for the one before it; None if it does not wait."""
    ranks: str = ""
    """The parameter with the table of the other ranks' memory (`libraries/symmetric.py`)."""
    gluon: bool = False
    """Whether tiles have Gluon layouts, so that positions are recomputed for each use."""

    def bind(self, result: SSAValue, value: Value, hint: str = "v") -> None:
        """Assign the value to a variable named after the SSA value."""
        name = self.writer.fresh(result.name_hint or hint)
        self.writer.line(f"{name} = {value.text}")
        self.values[result] = Value(name, value.shape, value.low, value.high)

    # ------------------------------------------------------------------ indices
    def position(self, dim: int, shape: Shape) -> Value:
        """`t<dim>`: the position along that dim of a tile of this shape."""
        extent = shape[dim]
        if self.gluon:
            name = f"gl.arange(0, {extent})"
        else:
            name = self.ranges.get(extent) or self.writer.fresh(f"r{extent}")
            self.ranges[extent] = name
        bounds = (Expr.of(0), Expr.of(extent - 1))
        return place(Value(name, (extent,), *bounds), [dim], len(shape))

    def indices(
        self, exprs: Sequence[Expr], shape: Shape, operands: Sequence[SSAValue],
        dims: ArrayAttr[SizesAttr] | None = None,
    ) -> list[Value]:
        """The index expressions of an op that makes or stores a tile of this shape.

        `operands`: the values of `%0`, `%1` ...; `dims`: the tile's dims to which theirs belong.
        """
        zero = {Symbol.place(d): 0 for d, extent in enumerate(shape) if extent == 1}
        zero |= {Symbol.operand(k): 0 for k, v in enumerate(operands) if self.values[v].text == "0"}
        exprs = [e.substitute(zero) for e in exprs]
        symbols = frozenset[Symbol]().union(*(e.symbols for e in exprs))
        names = dict(self.sizes)
        for dim in range(len(shape)):
            if Symbol.place(dim) in symbols:
                names[Symbol.place(dim)] = self.position(dim, shape)
        for k, operand in enumerate(operands):
            listed = () if dims is None else [d.constant or 0 for d in dims.data[k].data]
            names[Symbol.operand(k)] = place(self.values[operand], listed, len(shape))
        return [index_value(e, names) for e in exprs]

    def size(self, expr: Expr) -> Value:
        return size_value(expr, self.sizes)

    def product(self, sizes: Sequence[Expr]) -> Value:
        """The product of sizes; a variable at the top of the kernel if it has several factors."""
        short = short_product(sizes)
        if short is not None:
            return self.size(short)
        text = "*".join(self.size(size).atom for size in sizes)
        name = self.products.get(text) or self.writer.fresh("count")
        self.products[text] = name
        return Value(name)

    def is_wide(self, buffer: BufferType) -> bool:
        """Whether offsets into the buffer need 64 bits."""
        static = buffer.static_shape
        return self.options.wide if static is None else prod(static) > NARROW_ELEMENTS

    @cached_property
    def is_far(self) -> bool:
        """Whether the kernel has a buffer whose offsets need 64 bits. Then positions along a single
        dim may, too, and so do program ids, sizes and what is computed from them."""
        return any(self.is_wide(buffer_type(b)) for b in self.kernel.buffers)

    def offset(self, buffer: BufferType, indices: Sequence[Value]) -> Value:
        """The row-major position of an element: the sum of index times stride over the dims."""
        terms: list[tuple[str, Value]] = []
        for dim, index in enumerate(indices):
            if index.text == "0":
                continue
            if self.is_wide(buffer):
                index = Value(f"tl.cast({index.text}, tl.int64)", index.shape)
            stride = self.product(buffer.shape[dim + 1:])
            terms.append((scaled(index, stride), index))
        shape = broadcast([index.shape for _, index in terms])
        return Value(" + ".join(text for text, _ in terms) or "0", shape)
