"""Block kernels as OpenCL C: a work-item is a program, and its tiles are private arrays.

    block.kernel @bias(%x: f32[rows, 768], %b: f32[768], %y: f32[rows, 768]) grid(%r: rows, %c: 768)

    kernel void k_bias(global const float *v_x, ..., const long v_rows) {
      const long v_c = (long)get_global_id(0);
      const long v_r = (long)get_global_id(1);
      const float v_v = v_x[v_r*768L + v_c];

A tile of one element is a variable, and any other an array, which each operation fills in loops
over its dims. Their bounds are constants, so compilers unroll them and keep the elements in
registers. Raises TargetError for what a work-item cannot do: scratch memory of open sizes,
sums that several programs add to, and sorting.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from dialects.block import (
    ConvertOp,
    DotOp,
    ForOp,
    FullOp,
    IndexOp,
    KernelOp,
    LoadOp,
    MapOp,
    PrefetchOp,
    ReduceOp,
    ScanOp,
    ScratchOp,
    StoreOp,
    ValidOp,
    element_type,
)
from dialects.block.programs import dim_lists
from dialects.strata import types as t
from dialects.strata.types import BufferType, TileType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names
from targets.interface import TargetError
from targets.interpreted import is_left
from targets.naming import Names, one_line
from targets.opencl.names import Index, Value, legal
from targets.opencl.scalar import (
    combined,
    computed,
    expression,
    head,
    memory_text,
    number_text,
    type_text,
    unsigned_text,
    widened,
)
from targets.walking import kernels_of, operations

DIMS = 3
"""The dims of the range of work-items: the last two axes of a grid, and all others as one."""


def module_text(module: ModuleOp, exact: bool) -> str:
    """The kernels of a module that are not left to another target; `exact`: round products before
    they are added.

    Raises TargetError if one of them cannot be written in OpenCL.
    """
    kernels = [kernel for kernel in kernels_of(module) if not is_left(kernel)]
    names = function_names(kernels)
    return "\n".join([head(exact), *(kernel_text(k, names[k.sym_name.data]) for k in kernels)])


def function_names(kernels: Iterable[KernelOp]) -> dict[str, str]:
    """The name of each kernel's function, by the kernel's name."""
    names = Names(partial(legal, "k"))
    return {name: names.fresh(name) for name in (k.sym_name.data for k in kernels)}


def kernel_text(kernel: KernelOp, name: str) -> str:
    """The function of one kernel. Raises TargetError."""
    return _KernelWriter(kernel).text(name)


class _KernelWriter:
    """The lines of one kernel, with the values and sizes that have names in it."""

    def __init__(self, kernel: KernelOp) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.depth = 1
        self.names = Names(partial(legal, "v"))
        self.values: dict[SSAValue, Value] = {}
        self.sizes = {s: self.names.fresh(s.name) for s in kernel.size_names}

    def text(self, name: str) -> str:
        written = {op.buffer for op in self.kernel.walk() if isinstance(op, StoreOp)}
        parameters = [self._buffer(b, b in written) for b in self.kernel.buffers]
        parameters += [f"const long {size}" for size in self.sizes.values()]
        self._programs()
        self._run(self.kernel.body.block)
        nodes = one_line(n for op in self.kernel.walk() for n in location_names(op))
        comment = "// from " + nodes.replace("\\", "/") + "\n" if nodes else ""
        head = f"kernel void {name}({', '.join(parameters)}) {{"
        return "\n".join([comment + head, *self.lines, "}\n"])

    def _buffer(self, buffer: SSAValue, written: bool) -> str:
        assert isinstance(buffer.type, BufferType)
        name = self._name(buffer)
        const = "" if written else "const "
        return f"global {const}{memory_text(buffer.type.element)} *{name}"

    def _programs(self) -> None:
        """The program ids: those of the outer axes are digits of the last dim's id."""
        ids, extents = self.kernel.program_ids, self.kernel.grid.data
        for number, id_ in enumerate(reversed(ids)):
            dim = min(number, DIMS - 1)
            text = f"(long)get_global_id({dim})"
            axis = len(ids) - 1 - number
            inside = [self.index(e) for e in extents[axis + 1: len(ids) - DIMS + 1]]
            for extent in inside:
                text = f"{text} / {extent}"
            if number >= DIMS - 1 and axis > 0:
                text = f"{text} % {self.index(extents[axis])}"
            self.line(f"const long {self._name(id_)} = {text};")

    # ------------------------------------------------------------------ lines and names
    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def _name(self, value: SSAValue, shape: tuple[int, ...] = ()) -> str:
        name = self.names.fresh(value.name_hint or "")
        self.values[value] = Value(name, shape)
        return name

    @contextmanager
    def loop(self, head: str) -> Generator[None]:
        self.line(f"for ({head}) {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def each(self, shape: Sequence[int], dims: Sequence[int] | None = None) -> Generator[list[str]]:
        """Loops over the positions of a tile, whose lines follow; the names of the places.

        `dims`: over some dims only.
        """
        outer = self.depth
        places = [f"t{d}" for d in range(len(shape))]
        for d in range(len(shape)) if dims is None else dims:
            self.line(f"for (int t{d} = 0; t{d} < {shape[d]}; ++t{d}) {{")
            self.depth += 1
        yield places
        while self.depth > outer:
            self.depth -= 1
            self.line("}")

    def declare(self, value: SSAValue) -> Value:
        """A new variable or array for a value, not yet filled."""
        shape = value.type.shape if isinstance(value.type, TileType) else ()
        name = self._name(value, shape)
        count = f"[{math.prod(shape)}]" if shape else ""
        self.line(f"{type_text(element_type(value))} {name}{count};")
        return self.values[value]

    def fill(self, value: SSAValue, text: str) -> None:
        """A value whose element at t0, t1 ... is an expression."""
        shape = value.type.shape if isinstance(value.type, TileType) else ()
        if not shape:
            self.line(f"const {type_text(element_type(value))} {self._name(value)} = {text};")
            return
        made = self.declare(value)
        with self.each(shape) as places:
            self.line(f"{made.at(places)} = {text};")

    def index(
        self, expr: Expr, indices: Sequence[SSAValue] = (), dims: Sequence[Sequence[int]] = (),
    ) -> str:
        """An index expression; `dims`: to which places the dims of tiles of indices map."""
        names: dict[Symbol, str] = {**self.sizes, **{Symbol.place(d): f"t{d}" for d in range(10)}}
        for number, value in enumerate(indices):
            places = [f"t{d}" for d in dims[number]] if dims else []
            names[Symbol.operand(number)] = self.values[value].at(places)
        return Index(names).value(expr)

    # ------------------------------------------------------------------ operations
    def _run(self, block: Block) -> None:
        for op in operations(block):
            self._emit(op)

    def _emit(self, op: Operation) -> None:
        match op:
            case ForOp():
                self._for(op)
            case StoreOp():
                self._store(op)
            case LoadOp():
                element, inside = self._access(op, op.result.type)
                pad = number_text(op.pad_value, element_type(op.result))
                self.fill(op.result, f"{inside} ? {element} : {pad}" if inside else element)
            case MapOp():
                self._map(op)
            case FullOp():
                self.fill(op.result, number_text(op.number, element_type(op.result)))
            case IndexOp():
                dims = dim_lists(op.index_dims.data)
                self.fill(op.result, self.index(op.expr.data, op.indices, dims))
            case ValidOp():
                at, bound = (self.index(e.data, op.indices) for e in (op.expr, op.bound))
                self.fill(op.result, f"{at} < {bound}")
            case ConvertOp():
                self.values[op.result] = self.values[op.value]
            case ReduceOp():
                self._reduce(op)
            case ScanOp():
                self._scan(op)
            case DotOp():
                self._dot(op)
            case ScratchOp():
                self._scratch(op)
            case PrefetchOp():
                pass  # caches are the device's own business
            case _:
                self._scalar(op)

    def _access(self, op: LoadOp | StoreOp, tile: Attribute) -> tuple[str, str]:
        """The element of a buffer at t0, t1 ..., and the condition that it is inside, if asked."""
        assert isinstance(op.buffer.type, BufferType)
        where = [self.index(e, op.indices, dim_lists(op.index_dims.data)) for e in op.exprs]
        sizes = [self.index(size) for size in op.buffer.type.shape]
        position = ""
        for i, size in zip(where, sizes, strict=True):
            outer = position if position.isidentifier() else f"({position})"
            position = f"{outer}*{size} + {i}" if position.strip("0L") else i
        inside = [f"(ulong){where[d]} < (ulong){sizes[d]}" for d in op.checked_dims]
        return f"{self.values[op.buffer].text}[{position or 0}]", " && ".join(inside)

    def _store(self, op: StoreOp) -> None:
        if op.combiner is not None:
            raise TargetError("the target opencl does not add to elements indivisibly")
        assert isinstance(op.value.type, TileType)
        element, inside = self._access(op, op.value.type)
        with self.each(op.value.type.shape) as places:
            text = f"{element} = {self.values[op.value].at(places)};"
            self.line(f"if ({inside}) {text}" if inside else text)

    def _map(self, op: MapOp) -> None:
        made = [self.declare(result) for result in op.results]
        with self.each(op.result_type.shape) as places:
            if not op.result_type.shape:
                self.line("{")
                self.depth += 1
            for argument, value, dims in zip(op.body.block.args, op.inputs, op.dim_lists,
                                             strict=True):
                self.values[argument] = Value(self.values[value].at([places[d] for d in dims]))
            self._run(op.body.block)
            for result, value in zip(made, op.yielded, strict=True):
                self.line(f"{result.at(places)} = {self.values[value].text};")
            if not op.result_type.shape:
                self.depth -= 1
                self.line("}")

    def _scalar(self, op: Operation) -> None:
        [result] = op.results
        if isinstance(op, ConstantOp):
            assert isinstance(op.value, IntegerAttr | FloatAttr)
            self.values[result] = Value(number_text(op.value.value.data, result.type))
            return
        self.fill(result, expression(op, [self.values[v].text for v in op.operands]))

    def _reduce(self, op: ReduceOp) -> None:
        """Start from the first element along the dim, and combine the others with it in order."""
        assert isinstance(op.value.type, TileType)
        made, value, shape = self.declare(op.result), self.values[op.value], op.value.type.shape
        others = [d for d in range(len(shape)) if d != op.axis]
        with self.each(shape, others) as places:
            total = made.at([places[d] for d in others])
            first = [*places[:op.axis], "0", *places[op.axis + 1:]]
            self.line(f"{total} = {value.at(first)};")
            i = places[op.axis]
            with self.loop(f"int {i} = 1; {i} < {shape[op.axis]}; ++{i}"):
                both = combined(op.combiner.data, total, value.at(places), op.value.type.element)
                self.line(f"{total} = {both};")

    def _scan(self, op: ScanOp) -> None:
        if op.sorts:
            raise TargetError("the target opencl does not sort tiles")
        assert isinstance(op.value.type, TileType)
        made, value, shape = self.declare(op.result), self.values[op.value], op.value.type.shape
        with self.each(shape) as places:
            i = places[op.axis]
            before = made.at([*places[:op.axis], f"({i} - 1)", *places[op.axis + 1:]])
            here = value.at(places)
            both = combined(op.combiner.data, before, here, op.value.type.element)
            self.line(f"{made.at(places)} = {i} == 0 ? {here} : {both};")

    def _dot(self, op: DotOp) -> None:
        a, b, c = (self.values[v] for v in op.operands)
        assert isinstance(op.a.type, TileType) and isinstance(op.result.type, TileType)
        made, element = self.declare(op.result), op.result.type.element
        shape, depth = op.result.type.shape, op.a.type.shape[-1]
        with self.each(shape) as places:
            self.line(f"{made.at(places)} = {c.at(places)};")
            with self.loop(f"int k = 0; k < {depth}; ++k"):
                factors = [self._factor(op, 0, a.at([*places[:-1], "k"])),
                           self._factor(op, 1, b.at(["k", places[-1]]))]
                number = "f" if t.is_float(element) else "i"
                product = computed(f"arith.mul{number}", factors, element)
                total = computed(f"arith.add{number}", (made.at(places), f"({product})"), element)
                self.line(f"{made.at(places)} = {total};")

    def _factor(self, op: DotOp, number: int, text: str) -> str:
        """A factor of a product, in the type in which products are summed."""
        source = element_type(op.operands[number])
        if op.is_unsigned(number):
            text = f"({unsigned_text(source)}){text}"
        return f"(({type_text(element_type(op.result))}){widened(text, source)})"

    def _scratch(self, op: ScratchOp) -> None:
        assert isinstance(op.result.type, BufferType)
        shape = op.result.type.static_shape
        if shape is None:
            raise TargetError("the target opencl has no scratch memory of open sizes")
        name, element = self._name(op.result), memory_text(op.result.type.element)
        self.line(f"{element} {name}[{max(1, math.prod(shape))}];")

    def _for(self, op: ForOp) -> None:
        if op.is_conditional:
            raise TargetError("the target opencl has no loops that data end")
        counter, *arguments = op.body.block.args
        lower, upper = (self.index(e.data, op.indices) for e in (op.lower, op.upper))
        for argument, value in zip(arguments, op.carried, strict=True):
            self._assign(self.declare(argument), self.values[value])
        i = self._name(counter)
        with self.loop(f"long {i} = {lower}; {i} < {upper}; {i} += {op.step.data}"):
            self._run(op.body.block)
            self._carry(arguments, op.yielded)
        for result, argument in zip(op.results, arguments, strict=True):
            self.values[result] = self.values[argument]

    def _carry(self, arguments: Sequence[SSAValue], yielded: Sequence[SSAValue]) -> None:
        """The values of the next trip; those that are values of this one are copied first."""
        moved = {v: self.values[v] for v in yielded if v in arguments}
        for value in moved:
            self._assign(self.declare(value), moved[value])
        for argument, value in zip(arguments, yielded, strict=True):
            carried = moved.get(argument, self.values[argument])
            if value is not argument:
                self._assign(carried, self.values[value])
        self.values.update(moved)

    def _assign(self, target: Value, source: Value) -> None:
        with self.each(target.shape) as places:
            self.line(f"{target.at(places)} = {source.at(places)};")
