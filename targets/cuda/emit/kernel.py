"""A block kernel as a Triton function: signature, program ids, loops, and its other operations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from xdsl.ir import Block, Operation, SSAValue

from dialects.block import (
    AllReduceOp,
    BarrierOp,
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
)
from dialects.block.branches import branch_of, is_single
from dialects.strata.schedule_options import BRANCH, STREAM, ScheduleOption
from dialects.strata.types import TileType, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names
from targets.cuda.build.source import KernelSource
from targets.cuda.emit.attention_form import is_online
from targets.cuda.emit.compute import (
    emit_all_reduce,
    emit_convert,
    emit_dot,
    emit_full,
    emit_map,
    emit_reduce,
    emit_scan,
    exchanges_tiles,
)
from targets.cuda.emit.conditional import emit_barrier, emit_while
from targets.cuda.emit.context import Context, EmitOptions
from targets.cuda.emit.helpers import helper_texts
from targets.cuda.emit.memory import emit_index, emit_load, emit_store, emit_valid, stores_last
from targets.cuda.emit.partial_sums import (
    add_partial_sums,
    begin_partial_sums,
    end_partial_sums,
)
from targets.cuda.emit.programs import bind_program_ids
from targets.cuda.emit.rounding import needed_in_full
from targets.cuda.emit.specialized import kernel as specialized
from targets.cuda.emit.specialized.attention import AttentionEmission
from targets.cuda.emit.specialized.early import Early, emit_early, emit_trips
from targets.cuda.emit.specialized.products import ProductEmission
from targets.cuda.emit.specialized.streaming import last_loads
from targets.cuda.emit.values import NATIVE_POINTERS, Value, pointer_type
from targets.cuda.emit.writer import Writer
from targets.cuda.errors import EmitError
from targets.cuda.scheduling.options import (
    DESCEND,
    POINTERS,
    PROMOTE,
    REGISTERS,
    SPARE,
    SPECIALIZE,
    STAGES,
    STRIP,
    WARPS,
)
from targets.naming import one_line
from targets.origins import comment, once
from targets.walking import operations

T = TypeVar("T")


def emit_kernel(kernel: KernelOp, options: EmitOptions | None = None) -> KernelSource:
    """The Triton source of a kernel. Raises EmitError, naming the kernel, if Triton lacks a form.
    """
    context = Context(kernel, options or EmitOptions(), full=needed_in_full(kernel))
    context.stages = schedule_option(kernel, STAGES)
    context.promote = schedule_option(kernel, PROMOTE)
    context.native = frozenset(b for b in kernel.buffers if _feeds_products(b))
    context.streamed = last_loads(kernel) if schedule_option(kernel, STREAM) else frozenset()
    context.descends = schedule_option(kernel, DESCEND)
    context.branches = schedule_option(kernel, BRANCH)
    context.moving_pointers = schedule_option(kernel, POINTERS)
    is_specialized = schedule_option(kernel, SPECIALIZE) and context.options.has_instructions
    if is_specialized:
        context.writer.names.used |= specialized.NAMES
    name = context.writer.fresh(kernel.sym_name.data)
    try:
        if is_specialized:
            return _specialized(name, context)
        signature = _bind_parameters(context, {})
        warps = schedule_option(kernel, WARPS)
        if context.options.constants is not None and context.options.early is not None:
            constants = context.options.constants
            context.early = Early(kernel, constants, warps, context.options.early)
        _emit_body(context)
    except EmitError as error:
        raise EmitError(f"kernel @{kernel.sym_name.data}: {error}") from None
    return KernelSource(
        name, tuple(helper_texts(context.helpers, context.options.has_instructions)),
        _code(name, signature, context), signature, warps, max(context.stages, 1),
        schedule_option(kernel, REGISTERS), waits=context.early is not None)


def _specialized(name: str, context: Context) -> KernelSource:
    """The source of a warp-specialized kernel. Raises EmitError."""
    kernel = context.kernel
    groups = schedule_option(kernel, WARPS) // specialized.GROUP
    if not 1 <= groups <= specialized.GROUPS:
        raise EmitError(f"warp specialization allows at most {specialized.GROUPS} groups of "
                        f"{specialized.GROUP} consumer warps, not {groups}")
    context.gluon = True
    kind = AttentionEmission if is_online(kernel) else ProductEmission
    emission = kind(
        kernel, context, groups, max(context.stages, 2), schedule_option(kernel, STRIP),
        _emit_op)
    signature = _bind_parameters(context, emission.pointers)
    code = emission.text(name, signature)
    helpers = helper_texts(context.helpers, context.options.has_instructions)
    return KernelSource(
        name, (*specialized.HELPERS, *helpers), "\n".join([*_comment(kernel), code]), signature,
        specialized.GROUP, 1, groups=groups, row_axis=emission.row_axis,
        stays=emission.stays, spare=schedule_option(kernel, SPARE))


def _code(name: str, signature: Sequence[tuple[str, str]], context: Context) -> str:
    """The comment, signature, ranges, sizes and their products, and body."""
    writer = Writer()
    writer.lines += _comment(context.kernel)
    writer.line("@triton.jit")
    # the interpreter of Triton 3.6 only loops up to sizes that are plain numbers
    kind = ": tl.constexpr" if context.options.interpreted else ""
    parameters = [p if type_[0] == "*" else p + kind for p, type_ in signature]
    writer.line(f"def {name}({', '.join(parameters)}):")
    with writer.indented():
        for extent, range_name in sorted(context.ranges.items()):
            writer.line(f"{range_name} = tl.arange(0, {extent})")
        if context.is_far and not context.options.interpreted:  # whose sizes are Python's numbers
            for size in context.sizes.values():
                writer.line(f"{size.text} = {size.text}.to(tl.int64)")
        for product, product_name in context.products.items():
            writer.line(f"{product_name} = {product}")
    writer.lines += context.writer.lines
    writer.lines = once(writer.lines)
    return writer.text


def schedule_option(kernel: KernelOp, option: ScheduleOption[T]) -> T:
    """An option of the kernel's schedule; its default where there is no schedule.

    Raises EmitError for a value that the option cannot have.
    """
    if kernel.schedule is None:
        return option.default
    value = kernel.schedule.data.given(option.name)
    if value is not None and not option.has(value):
        raise EmitError(f"kernel @{kernel.sym_name.data}: schedule option {option.name} = {value} "
                        f"must be {option.values}")
    return kernel.schedule.data.option(option)


def _bind_parameters(
    context: Context, pointers: Mapping[SSAValue, str]
) -> tuple[tuple[str, str], ...]:
    """Name the buffers and sizes. `pointers`: the types of buffers that are tensor maps."""
    signature: list[tuple[str, str]] = []
    for k, buffer in enumerate(context.kernel.buffers):
        name = context.writer.fresh(buffer.name_hint or f"b{k}")
        context.values[buffer] = Value(name)
        element = buffer_type(buffer).element
        plain = (NATIVE_POINTERS[element] if buffer in context.native
                 else pointer_type(element))
        signature.append((name, pointers.get(buffer, plain)))
    for size in context.kernel.size_names:
        name, symbol = context.writer.fresh(size.name), Expr.symbol(size)
        context.sizes[size] = Value(name, (), symbol, symbol)
        signature.append((name, "i32"))
    if exchanges_tiles(context.kernel):
        context.ranks = context.writer.fresh("ranks")
        signature.append((context.ranks, "*i64"))
    return tuple(signature)


def _feeds_products(buffer: SSAValue) -> bool:
    """Whether a buffer holds narrow floats that are only read as factors of `tl.dot`."""
    loads = [use.operation for use in buffer.uses]
    return buffer_type(buffer).element in NATIVE_POINTERS and all(
        isinstance(load, LoadOp) and load.pad_value == 0 and all(
            isinstance(use.operation, DotOp) for use in load.result.uses) for load in loads)


def _comment(kernel: KernelOp) -> list[str]:
    """A comment for readers: the kernel's model nodes, grid and schedule."""
    named = one_line(name for op in kernel.walk() for name in location_names(op))
    grid = ", ".join(map(str, kernel.grid.data))
    lines = [f"# kernel @{kernel.sym_name.data}, grid({grid})"]
    lines += [f"# from {named}"] if named else []
    lines += [f"# schedule{kernel.schedule.text}"] if kernel.schedule is not None else []
    return [" ".join(line.split()) for line in lines]


def _emit_body(context: Context) -> None:
    with context.writer.indented():
        bind_program_ids(context, schedule_option(context.kernel, STRIP), _flat_id(context))
        emit_early(context, context.kernel.body.block, emit_load)
        emit_block(context.kernel.body.block, context)
        if not context.writer.lines:
            context.writer.line("pass")


def _flat_id(context: Context) -> str:
    """The program's number in the grid."""
    return "tl.program_id(0)" + (".to(tl.int64)" if context.is_far else "")


# ---------------------------------------------------------------------- operations
def emit_block(block: Block, context: Context) -> None:
    """Emit all operations of a block, except its yield and the loads before the wait."""
    early: Collection[Operation] = () if context.early is None else context.early.loads
    for op in stores_last(op for op in operations(block) if op not in early):
        _emit_op(op, context)


def _emit_op(op: Operation, context: Context) -> None:
    """Emit an operation; the first of its lines names its nodes."""
    lines = context.writer.lines
    before = len(lines)
    _emitter_of(type(op))(op, context)
    if len(lines) > before:
        lines[before] += comment(location_names(op))


def _emit_for(op: ForOp, context: Context) -> None:
    if context.early is not None and op in context.early.loops:
        emit_trips(op, context.early.loops[op], emit_block, context)
        return
    if is_single(op) or branch_of(op) is not None:
        _emit_branch(op, context)
        return
    carried = [_carry(argument, value, context)
               for argument, value in zip(op.body.block.args[1:], op.carried, strict=True)]
    if op.is_conditional:
        emit_while(op, carried, emit_block, _assign, context)
        _end(op, carried, context)
        return
    sums = begin_partial_sums(op, carried, context)
    names = [next((s.part for s in sums if s.total == name), name) for name in carried]
    lower, upper = context.indices([op.lower.data, op.upper.data], (), op.indices)
    step = op.step.data.constant or 1
    counter = context.writer.fresh(op.counter.name_hint or "k")
    context.values[op.counter] = Value(counter, (), lower.low, _last(lower, upper, step))
    ends = [_loop_bound(e.data, value, op, context)
            for e, value in ((op.lower, lower), (op.upper, upper))]
    bounds = f"{', '.join(ends)}, {step}"
    staged = context.stages > 1 and not op.is_parallel and _loads(op) and not _repairs(op)
    loop = f"tl.range({bounds}, num_stages={context.stages})" if staged else (
        f"{'tl.static_range' if _is_unrolled(op) else 'range'}({bounds})")
    context.writer.line(f"for {counter} in {loop}:")
    with context.writer.indented():
        before = len(context.writer.lines)
        context.loops += 1
        emit_block(op.body.block, context)
        context.loops -= 1
        _assign(names, [context.values[v].text for v in op.yielded], context)
        add_partial_sums(sums, op, counter, context)
        if len(context.writer.lines) == before:
            context.writer.line("pass")
    end_partial_sums(sums, context)
    _end(op, carried, context)


def _end(op: ForOp, carried: Sequence[str], context: Context) -> None:
    """Bind the results of a loop to the variables that it carries."""
    for argument, result, name in zip(op.body.block.args[1:], op.results, carried, strict=True):
        context.values[result] = Value(name, context.values[argument].shape)


def _emit_branch(op: ForOp, context: Context) -> None:
    """A loop of one trip or none: the name of an index, in a branch if it may have none."""
    branch = branch_of(op)
    index = op.lower.data if branch is None else branch.index
    [value] = context.indices([index], (), op.indices)
    if branch is None:
        context.bind(op.counter, value, "i")
        emit_block(op.body.block, context)
        return
    ends = Expr.of(branch.first), Expr.of(branch.end - 1)
    context.bind(op.counter, Value(value.text, (), *ends), "i")
    name = context.values[op.counter].text
    conditions = [f"{name} >= {branch.first}"] if value.low is None or (
        value.low.constant or 0) < branch.first else []
    conditions += [f"{name} < {branch.end}"] if value.high is None or (
        value.high.constant is None or value.high.constant >= branch.end) else []
    whole = " & ".join(f"({c})" for c in conditions)
    context.writer.line(f"if {whole or 'True'}:")
    with context.writer.indented():
        emit_early(context, op.body.block, emit_load)
        emit_block(op.body.block, context)


def _loop_bound(expr: Expr, value: Value, op: ForOp, context: Context) -> str:
    """A loop bound; for the interpreter of Triton 3.6, which accepts nothing else, a number."""
    computed = [Symbol.operand(k) for k, v in enumerate(op.indices) if isinstance(
        v.type, TileType) or (v in context.kernel.program_ids and context.values[v].text != "0")]
    if not context.options.interpreted or expr.symbols.isdisjoint(computed):
        return value.text
    return f"({value.text}).handle.data.item()"


def _is_unrolled(op: ForOp) -> bool:
    """Whether a loop of static length is unrolled."""
    length, step = (op.upper.data - op.lower.data).constant, op.step.data.constant or 1
    return length is not None and 1 < -(-length // step) <= (op.unroll.data.constant or 1)


def _loads(op: ForOp) -> bool:
    """Whether the loop's own body loads; only the innermost such loop is pipelined."""
    return any(isinstance(inner, LoadOp) for inner in op.body.block.ops)


def _repairs(op: ForOp) -> bool:
    """Whether the loop is inside one whose trips depend on data, and which mostly has none."""
    outer = op.parent_op()
    return isinstance(outer, ForOp) and (_repairs(outer) or any(
        isinstance(v.type, TileType) for v in outer.indices))


def _carry(argument: SSAValue, value: SSAValue, context: Context) -> str:
    """A loop-carried variable, set to its first value."""
    name = context.writer.fresh(argument.name_hint or "carried")
    context.writer.line(f"{name} = {context.values[value].text}")
    context.values[argument] = Value(name, context.values[value].shape)
    return name


def _assign(names: Sequence[str], texts: Sequence[str], context: Context) -> None:
    """Assign all variables as if at once: one that a later assignment reads is saved first."""
    saved: dict[str, str] = {}
    for k, name in enumerate(names):
        if name in texts[k + 1:]:
            saved[name] = context.writer.fresh(f"last_{name}")
            context.writer.line(f"{saved[name]} = {name}")
    for k, (name, text) in enumerate(zip(names, texts, strict=True)):
        if name != text:
            context.writer.line(f"{name} = {saved[text] if text in names[:k] else text}")


def _last(lower: Value, upper: Value, step: int) -> Expr | None:
    """The counter's largest value; None if it is unknown."""
    if upper.high is None:
        return None
    if lower.low is None or lower.low != lower.high or upper.low != upper.high:
        return upper.high - 1
    return lower.low + (upper.high - 1 - lower.low) // step * step


def _ignore(op: PrefetchOp, context: Context) -> None:
    """Nothing to emit: Triton's software pipelining already prefetches."""


def _refuse_scratch(op: ScratchOp, context: Context) -> None:
    raise EmitError("block.scratch is memory of one CPU program; on CUDA place the value in a "
                    "tile or in a buffer of its own")


@cache
def _emitters() -> dict[type[Operation], Callable[[Any, Context], None]]:
    return {
        LoadOp: emit_load, StoreOp: emit_store, IndexOp: emit_index, ValidOp: emit_valid,
        FullOp: emit_full, MapOp: emit_map, ReduceOp: emit_reduce, DotOp: emit_dot,
        ConvertOp: emit_convert, ForOp: _emit_for, ScratchOp: _refuse_scratch,
        PrefetchOp: _ignore, BarrierOp: emit_barrier, ScanOp: emit_scan,
        AllReduceOp: emit_all_reduce,
    }


def _emitter_of(kind: type[Operation]) -> Callable[[Any, Context], None]:
    if kind not in _emitters():
        raise EmitError(f"{kind.name} has no form in Triton")
    return _emitters()[kind]
