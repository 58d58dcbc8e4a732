"""graph-annotate-shards: say which tensors are to be divided among the ranks of a mesh.

    %y = graph.matmul %x, %w             %w1 = graph.shard_as %w {axes = "_,tp"} : f32[64, 128]
                                   -->   %y = graph.matmul %x, %w1

Along the axis `dp`, the first dim of inputs is divided, as far as it is that of the first input;
along `sp` the second dim of batches of sequences, so that each rank has some positions: norms and
products stay local, and attention gathers keys and values. An open size n becomes 2*n_dp for two
ranks, which refuses odd ones.

Along `tp`, columns of weights are divided: those that make a step of a rank shortest, by the bytes
that it reads, the products that it computes, and what it exchanges (`Facts.rates`). Rows of the
weights of following products are then divided, too, because shardings propagate. All products are
tried with columns; then each is left out that is better left whole.

Annotations that are already there stay, and no others are added. Does nothing without a mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.graph import CastOp, ConstantOp, MatmulOp, ReshapeOp, TransposeOp
from dialects.graph.base import Build, GraphOp
from dialects.graph.collective import ShardAsOp
from dialects.ranks.mesh import Mesh
from dialects.records import dataclass
from dialects.strata.func import FuncOp, main_function
from dialects.strata.sizes import defined_sizes
from dialects.strata.types import TensorType, is_float, tensor_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name
from passes.analyses.graph.shardings import (
    Answer,
    Asked,
    Sharding,
    answer,
    divides,
    local_shape,
    whole,
)
from passes.analyses.host.arena import hint
from passes.base import PassError, StrataContext, StrataPass
from passes.contract import Rates
from passes.graph.fix_sizes import replace_sizes
from passes.rewriting import functions

ROWS, COLUMNS, LENGTH = "dp", "tp", "sp"
DIMS = {ROWS: 0, LENGTH: 1}
"""The dims of inputs that axes divide."""
MOST_TRIALS = 64
"""Products beyond this number are kept as they are tried first."""


@dataclass(frozen=True)
class GraphAnnotateShards(StrataPass):
    """Choose what is divided among ranks. `mesh`: instead of the compilation's."""

    name = "graph-annotate-shards"

    mesh: str = ""

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        mesh = Mesh.parse(self.mesh) if self.mesh else context.mesh
        if mesh is None or any(isinstance(op, ShardAsOp) for op in module.walk()):
            return
        faults = _annotate_inputs(module, mesh)
        if mesh.size(COLUMNS) > 1:
            faults += _annotate_weights(self, context, module, mesh)
        if faults:
            raise PassError(self.name, faults)


# ---------------------------------------------------------------------- dims of inputs
def _annotate_inputs(module: ModuleOp, mesh: Mesh) -> list[tuple[str, str]]:
    """Annotate the dims of inputs that axes divide; returns faults."""
    sizes, faults = dict[str, Expr](), list[tuple[str, str]]()
    for axis in (a for a in DIMS if mesh.size(a) > 1):
        name, size = _first_size(module, axis, mesh.size(axis))
        if divides(size, mesh.size(axis)):
            sizes[axis] = size
        else:
            faults.append((name, _fault(axis, size, mesh)))
    _divide_inputs(main_function(module), sizes)
    return faults


def _first_size(module: ModuleOp, axis: str, count: int) -> tuple[str, Expr]:
    """The first input with a dim that an axis divides, and the dim's size, which is 1 without such
    an input. If it is open, it becomes a multiple of the number of ranks."""
    func = main_function(module)
    for name, argument in zip(func.input_names, func.body.block.args, strict=True):
        if isinstance(argument.type, TensorType) and _has_dim(argument.type, axis):
            return name, _multiple(module, argument.type.shape[DIMS[axis]], axis, count)
    return "", Expr.of(1)


def _fault(axis: str, size: Expr, mesh: Mesh) -> str:
    count = mesh.size(axis)
    if size.constant == 1 and axis == LENGTH:
        return f"the mesh {mesh} divides sequences, and no input is a batch of longer ones"
    what = (f"is no multiple of {count}" if size.constant is not None else
            f"is open and no size of its own: fix its sizes with --dim NAME=N, to a multiple of "
            f"{count}")
    of = " of batches of sequences" if axis == LENGTH else ""
    return f"the mesh {mesh} divides dim {DIMS[axis]}{of}, and its size {size} {what}"


def _has_dim(type_: TensorType, axis: str) -> bool:
    """Whether a type has rows, or a length after a batch: features of one item are no sequence."""
    if axis == ROWS:
        return type_.rank > 0
    return type_.rank > 2 or (type_.rank == 2 and not is_float(type_.element))


def _divide_inputs(func: FuncOp, sizes: Mapping[str, Expr]) -> None:
    """Annotate the inputs that have one of these sizes where its axis divides them."""
    before = func.body.block.first_op
    assert before is not None
    for argument in func.body.block.args:
        if not isinstance(argument.type, TensorType):
            continue
        axes = ["_"] * argument.type.rank
        for axis, size in sizes.items():
            if _has_dim(argument.type, axis) and argument.type.shape[DIMS[axis]] == size:
                axes[DIMS[axis]] = axis
        if {*axes} - {"_"}:
            _annotate(argument, axes, before)


def _multiple(module: ModuleOp, size: Expr, axis: str, count: int) -> Expr:
    """Let an open size be a multiple of the number of ranks, everywhere in the program."""
    if len(size.symbols) != 1 or divides(size, count):
        return size
    [symbol] = size.symbols
    main = main_function(module)
    others = [f for f in functions(module) if f is not main and symbol in f.caller_sizes]
    if size != Expr.symbol(symbol) or others or any(symbol in defined_sizes(op)
                                                    for op in main.body.block.ops):
        return size
    wanted = count * Expr.symbol(Symbol.size(f"{symbol.name}_{axis}"))
    replace_sizes(main, {symbol: wanted})
    return wanted


def _annotate(value: SSAValue, axes: Sequence[str], before: Operation) -> SSAValue:
    """Use an annotated value instead."""
    users = list(value.uses)
    made = Build(before)(ShardAsOp, value, axes=",".join(axes))
    for use in users:
        use.operation.operands[use.index] = made
    made.name_hint = value.name_hint
    return made


# ---------------------------------------------------------------------- columns of weights
@dataclass(frozen=True)
class Choice:
    """Products whose columns are divided; a rank's predicted seconds for the products and exchanges
    of a step without and with that."""

    products: list[MatmulOp]
    alone: float
    divided: float

    def told(self, mesh: Mesh) -> str:
        gain = (f"{self.alone / self.divided:.2f} times as fast" if self.divided < self.alone
                else f"{self.divided / self.alone:.2f} times as slow, and weights take less memory")
        return (f"columns of {len(self.products)} products are divided for {mesh}: products, their "
                f"weights and exchanges are predicted to take {1e6 * self.divided:.3g} us on a "
                f"rank, and {1e6 * self.alone:.3g} us undivided: {gain}")


def _annotate_weights(
    pass_: StrataPass, context: StrataContext, module: ModuleOp, mesh: Mesh
) -> list[tuple[str, str]]:
    """Annotate weights of products; returns faults."""
    rates = context.facts.rates
    count, funcs = mesh.size(COLUMNS), functions(module)
    products = [op for f in funcs for op in f.body.block.ops if _is_linear(op)]
    fitting = [op for op in products if isinstance(op, MatmulOp) and _divides(op, count)]
    found = _best(funcs, fitting, mesh, rates)
    for op in found.products:
        rank = tensor_type(op.b).rank
        axes = ["_"] * (rank - 1) + [COLUMNS]
        op.operands[1] = Build(op)(ShardAsOp, op.b, axes=",".join(axes))
    if found.products:
        context.remark(pass_, funcs[0], found.told(mesh))
        return []
    shown = [(location_name(op), f"its weight {tensor_type(op.operands[1]).short} has columns that "
              f"are no multiple of {count}") for op in products if op not in fitting]
    return shown[:8] or [("", f"the mesh {mesh} divides weights of products, and no product of the "
                          "model is faster so")]


def _is_linear(op: Operation) -> bool:
    """Whether it is a product with a weight."""
    return isinstance(op, MatmulOp) and _is_weight(op.b) and tensor_type(op.b).rank >= 2


def _is_weight(value: SSAValue) -> bool:
    owner = value.owner
    if isinstance(owner, TransposeOp | CastOp | ReshapeOp):
        return _is_weight(owner.operands[0])
    return isinstance(owner, ConstantOp)


def _divides(op: MatmulOp, count: int) -> bool:
    columns = tensor_type(op.b).shape[-1].constant
    return columns is not None and columns > 0 and columns % count == 0


def _best(
    funcs: Sequence[FuncOp], fitting: Sequence[MatmulOp], mesh: Mesh, rates: Rates
) -> Choice:
    """The products whose columns are worth dividing; if none are, because exchanges wait too long,
    those that would be if they did not, since weights may not fit one rank."""
    alone = _seconds(funcs, set(), mesh, rates)
    for known in (rates, replace(rates, waits=0.0)):
        chosen = _faster(funcs, fitting, mesh, known)
        if chosen:
            return Choice(chosen, alone, _seconds(funcs, {*chosen}, mesh, rates))
    return Choice([], alone, alone)


def _faster(
    funcs: Sequence[FuncOp], fitting: Sequence[MatmulOp], mesh: Mesh, rates: Rates
) -> list[MatmulOp]:
    chosen = set(fitting)
    best = _seconds(funcs, chosen, mesh, rates)
    for op in fitting[:MOST_TRIALS]:
        found = _seconds(funcs, chosen - {op}, mesh, rates)
        if found <= best:
            chosen, best = chosen - {op}, found
    alone = _seconds(funcs, set(), mesh, rates)
    return [op for op in fitting if op in chosen] if best < alone else []


def _seconds(
    funcs: Sequence[FuncOp], columns: set[MatmulOp], mesh: Mesh, rates: Rates
) -> float:
    """An estimate of a rank's time for a step, if these products have divided columns."""
    return sum(_Trial(dict(mesh.axes), columns, rates).seconds(func) for func in funcs)


@dataclass
class _Trial:
    """Propagation without any change of the program."""

    axes: Mapping[str, int]
    columns: set[MatmulOp]
    rates: Rates
    shardings: dict[SSAValue, Sharding] = field(default_factory=dict[SSAValue, Sharding])
    moved: set[tuple[SSAValue, Sharding]] = field(default_factory=set[tuple[SSAValue, Sharding]])
    time: float = 0.0

    def seconds(self, func: FuncOp) -> float:
        for argument in func.body.block.args:
            self.shardings[argument] = _whole(argument)
        for op in func.body.block.ops:
            self._follow(op)
        return self.time

    def _follow(self, op: Operation) -> None:
        given = [self.shardings[v] for v in op.operands]
        if isinstance(op, MatmulOp) and op in self.columns:
            given[1] = (*given[1][:-1], COLUMNS)
        found = answer(Asked(op, tuple(given), self.axes)) if isinstance(op, GraphOp) else None
        if found is None:
            found = Answer(tuple(map(_whole, op.operands)), ())
            results = list(map(_whole, op.results))
        else:
            results = [found.result]
        for value, sharding in zip(op.operands, found.operands, strict=True):
            self._move(value, sharding)
        for result, sharding in zip(op.results, results, strict=True):
            self.shardings[result] = sharding
            if found.reduced:
                size, ranks = self._bytes(result, sharding), prod(
                    self.axes[axis] for axis in found.reduced)
                self.time += self.rates.all_reduce(size, ranks)
        if isinstance(op, MatmulOp):
            self._multiply(op, found)

    def _move(self, value: SSAValue, wanted: Sharding) -> None:
        """Gather a value whose dims are divided otherwise; to cut it costs nothing."""
        given = self.shardings[value]
        gathered = [self.axes[old] for old, new in zip(given, wanted, strict=True)
                    if old and old != new]
        if gathered and (value, wanted) not in self.moved:
            self.moved.add((value, wanted))
            size = self._bytes(value, _whole(value))
            self.time += self.rates.all_gather(size, prod(gathered))

    def _multiply(self, op: MatmulOp, found: Answer) -> None:
        a, b = found.operands or (_whole(op.a), _whole(op.b))
        rows = self._count(op.results[0], found.result or _whole(op.results[0]))
        summed = local_shape(tensor_type(op.a).shape[-1:], a[-1:], self.axes)
        self.time += 2 * rows * hint(summed[0]) / self.rates.products
        if _is_weight(op.b):
            self.time += self._bytes(op.b, b) / self.rates.reads

    def _bytes(self, value: SSAValue, sharding: Sharding) -> float:
        return self._count(value, sharding) * tensor_type(value).dtype.itemsize

    def _count(self, value: SSAValue, sharding: Sharding) -> float:
        return hint(product(local_shape(tensor_type(value).shape, sharding, self.axes)))


def _whole(value: SSAValue) -> Sharding:
    return whole(value.type) if isinstance(value.type, TensorType) else ()
