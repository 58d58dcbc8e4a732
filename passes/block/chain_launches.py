"""block-chain-launches: one launch for a chain of them, computed block by block in cache.

    host.launch @a(%x, %v)     --> host.launch @chain_0(%x, %y)
    host.launch @b(%v, %y)
                                   block.kernel @chain_0(%x, %y) grid(%p: 75) {
    @a: grid(%t: 225)                %v = block.scratch : f32[3, 64]
      store %v[%t, ..]               block.for %t = 3*%p to 3*%p + 3 {
    @b: grid(%r: 900)                  the program of @a    store %v[%t mod 3, ..]
      load %v[%r floordiv 4, ..]     block.for %r = 12*%p to 12*%p + 12 {
                                       the program of @b    load %v[%r floordiv 4 mod 3, ..]

What a chain's launches hand on, such as the transformed data and the products of Winograd's
convolutions, may be larger than what they begin and end with. Here each program computes a block of
all of it, keeps that in its core's cache, and the next program uses the same memory again.

Enters: final kernels on planned memory. Chains are neighbouring launches of which each writes a
buffer that only the next one reads, along axes of both grids (`passes/analyses/block/chains.py`).
Chained are those whose buffers are too large for a core's cache (`Facts.chained_bytes`) while a
block's part fits, if there are enough blocks for many threads, and reading what all blocks share
(filters) once per block takes less than the buffers do. Leaves: memory planned anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.block import (
    ConvertOp,
    ForOp,
    FullOp,
    IndexOp,
    KernelOp,
    LoadOp,
    MapOp,
    PrefetchOp,
    ReduceOp,
    StoreOp,
    ValidOp,
    YieldOp,
)
from dialects.host import AllocOp, ConstantOp, FuncOp, LaunchOp, ViewOp, host_functions
from dialects.strata.types import BufferType, byte_width
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.text.syntax import merge_locations
from dialects.walking import walked
from passes.analyses.block.chains import Chain
from passes.analyses.block.tile_operations import tile_operations
from passes.base import StrataContext, StrataPass
from passes.host.plan_buffers import memory_of, plan_again, seen_memory, shared_memory
from passes.rewrites.block.chained import chained_kernel, kept_shape

LEAST_BLOCKS = 64
"""The fewest blocks of a chain; with fewer, some of many threads would have none."""

_PLAIN = (LoadOp, StoreOp, MapOp, IndexOp, ValidOp, FullOp, ReduceOp, ConvertOp, YieldOp, ForOp,
          PrefetchOp)

_Key = tuple[object, ...]


class BlockChainLaunches(StrataPass):
    """Compute chains of launches block by block."""

    name = "block-chain-launches"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        room = context.facts.chained_bytes
        if not room:
            return
        kernels = {op.sym_name.data: op for op in module.body.block.ops
                   if isinstance(op, KernelOp)}
        made: dict[_Key, str] = {}
        for function in host_functions(module):
            chains = [(chain, steps) for chain in _chains(function, kernels, room)
                      if (steps := block_steps(chain, room))
                      and context.allowance.take(chain.launches[-1], self.name)]
            if chains:
                shared = shared_memory(function, {op for c, _ in chains for op in c.launches})
                for chain, steps in chains:
                    _replace(module, kernels, chain, steps, made)
                plan_again(function, shared)
        if made:
            _erase_unused(module, kernels)


# ---------------------------------------------------------------------- finding chains
def _chains(
    function: FuncOp, kernels: Mapping[str, KernelOp], room: int
) -> Iterator[Chain]:
    """The chains that pay, each as long as it can be."""
    for run in _runs(function, kernels):
        while run:
            chain = _longest(run, kernels)
            pays = block_steps(chain, room) > 0
            if pays:
                yield chain
            run = run[len(chain.launches) if pays else 1:]


def _runs(function: FuncOp, kernels: Mapping[str, KernelOp]) -> Iterator[list[LaunchOp]]:
    """Launches of plain kernels with nothing between them but names of memory."""
    run: list[LaunchOp] = []
    for op in function.body.block.ops:
        if isinstance(op, LaunchOp) and _is_plain(op, kernels):
            run.append(op)
        elif not isinstance(op, ViewOp | ConstantOp) and not (
                isinstance(op, AllocOp) and op.offset is not None):
            yield run
            run = []
    yield run


def _is_plain(op: LaunchOp, kernels: Mapping[str, KernelOp]) -> bool:
    """Whether a launch always happens, with sizes under their own names, and works on tiles."""
    kernel = kernels.get(op.kernel.data)
    return kernel is not None and op.when is None and (
        [e.as_symbol for e in op.sizes.data] == kernel.size_names) and all(
        isinstance(x, _PLAIN) for x in tile_operations(kernel))


def _longest(run: list[LaunchOp], kernels: Mapping[str, KernelOp]) -> Chain:
    """The longest chain from the first launch on."""
    chain = Chain((run[0],), (kernels[run[0].kernel.data],))
    for launch in run[1:]:
        longer = _extended(chain, launch, kernels[launch.kernel.data])
        if longer is None:
            break
        chain = longer
    return chain


def _extended(chain: Chain, launch: LaunchOp, kernel: KernelOp) -> Chain | None:
    last = chain.launches[-1]
    for written, buffer in enumerate(last.buffers):
        read = next((k for k, b in enumerate(launch.buffers)
                     if seen_memory(b) is seen_memory(buffer)), None)
        if read is None or not _is_handed_on(buffer, last, launch):
            continue
        longer = chain.with_next(launch, kernel, written, read)
        if longer is not None and _is_apart(longer):
            return longer
    return None


def _is_handed_on(buffer: SSAValue, writer: LaunchOp, reader: LaunchOp) -> bool:
    """Whether two launches, and nothing else, use a buffer, each once."""
    memory = memory_of(buffer)
    return memory is not None and memory.offset is not None and (
        sorted(map(id, _users(memory.result))) == sorted(map(id, (writer, reader))))


def _users(value: SSAValue) -> Iterator[object]:
    """What uses a buffer, directly or through views."""
    for use in value.uses:
        if isinstance(use.operation, ViewOp):
            yield from _users(use.operation.result)
        else:
            yield use.operation


def _is_apart(chain: Chain) -> bool:
    """Whether no kernel of a chain touches what another one writes, but for the links."""
    touched: dict[SSAValue, int] = {}
    written: set[SSAValue] = set()
    for number, (launch, kernel) in enumerate(zip(chain.launches, chain.kernels, strict=True)):
        stored = {op.buffer for op in walked(kernel) if isinstance(op, StoreOp)}
        for k, (value, buffer) in enumerate(zip(launch.buffers, kernel.buffers, strict=True)):
            memory = seen_memory(value)
            if chain.is_link(number, k):
                continue
            is_written = buffer in stored
            if touched.get(memory, number) != number and (is_written or memory in written):
                return False
            touched[memory] = number
            written |= {memory} if is_written else set()
    return True


# ---------------------------------------------------------------------- what pays
def block_steps(chain: Chain, room: int) -> int:
    """How many steps of the last joint axis a block should have; 0: the chain should stay apart."""
    if not chain.links:
        return 0
    extents = [_count(j.extent) for j in chain.joints]
    whole = sum(_bytes(chain, k, _extents(chain, k)) for k in range(len(chain.links)))
    blocks = product(extents).constant or 0
    for steps in _divisors(chain):
        parts = [kept_shape(chain, k, steps) for k in range(len(chain.links))]
        if any(e.constant is None for shape in parts for e in shape):
            return 0
        kept = sum(_bytes(chain, k, shape) for k, shape in enumerate(parts))
        count = blocks // steps
        if count >= LEAST_BLOCKS and kept <= (room if steps == 1 else room // 2) and (
                whole > room and count * _common_bytes(chain) <= 2 * whole):
            return steps
    return 0


def _divisors(chain: Chain) -> list[int]:
    """The numbers of steps that make equal blocks, the largest first."""
    last = chain.joints[-1]
    extents = [kernel.grid.data[axes[-1]].constant for kernel, axes in zip(
        chain.kernels, last.axes, strict=True)]
    count = gcd(*(-(-n // f) for n, f in zip(extents, last.factors, strict=True) if n)) or 1
    return [n for n in range(count, 0, -1) if count % n == 0]


def _count(size: Expr) -> int:
    """A size, with sizes known only at run time as 1."""
    return size.substitute(dict.fromkeys(size.symbols, 1)).constant or 1


def _extents(chain: Chain, link: int) -> list[Expr]:
    return [p.size for p in chain.links[link].parts]


def _bytes(chain: Chain, link: int, shape: list[Expr]) -> int:
    type_ = chain.kernels[link].buffers[chain.links[link].written].type
    assert isinstance(type_, BufferType)
    return _count(product(shape)) * byte_width(type_.element)


def _common_bytes(chain: Chain) -> int:
    """The bytes of what every block reads whole."""
    total = 0
    for number, kernel in enumerate(chain.kernels):
        joint = {kernel.program_ids[a] for j in chain.joints for a in j.axes[number]}
        for k, buffer in enumerate(kernel.buffers):
            uses = [u.operation for u in buffer.uses]
            own = [op for op in uses if isinstance(op, StoreOp) or (
                isinstance(op, LoadOp) and not joint.isdisjoint(op.indices))]
            if own or chain.is_link(number, k):
                continue
            assert isinstance(buffer.type, BufferType)
            total += _count(buffer.type.count) * byte_width(buffer.type.element)
    return total


# ---------------------------------------------------------------------- replacing them
def _replace(
    module: ModuleOp, kernels: dict[str, KernelOp], chain: Chain, steps: int,
    made: dict[_Key, str],
) -> None:
    """Replace the launches of a chain by one, of a new kernel unless the same chain has one."""
    key = (*(k.sym_name.data for k in chain.kernels),
           *((x.written, x.read) for x in chain.links), steps)
    if key not in made:
        name = next(n for n in (f"chain_{k}" for k in range(len(kernels) + 1)) if n not in kernels)
        kernels[name] = chained_kernel(chain, steps, name)
        module.body.block.add_op(kernels[name])
        made[key] = name
    kernel, last = kernels[made[key]], chain.launches[-1]
    buffers = [b for number, op in enumerate(chain.launches) for k, b in enumerate(op.buffers)
               if not chain.is_link(number, k)]
    launch = LaunchOp.of(made[key], buffers, [Expr.symbol(s) for s in kernel.size_names])
    merge_locations(launch, chain.launches)
    assert last.parent is not None
    last.parent.insert_op_before(launch, last)
    links = [op.buffers[x.written] for op, x in zip(chain.launches, chain.links, strict=False)]
    for op in chain.launches:
        op.detach()
        op.erase()
    for memory in map(memory_of, links):
        assert memory is not None
        _erase_names(memory.result)


def _erase_names(value: SSAValue) -> None:
    """Erase an allocation or a view, and all views of it."""
    for use in list(value.uses):
        assert isinstance(use.operation, ViewOp)
        _erase_names(use.operation.result)
    op = value.owner
    assert isinstance(op, AllocOp | ViewOp)
    op.detach()
    op.erase()


def _erase_unused(module: ModuleOp, kernels: Mapping[str, KernelOp]) -> None:
    called = {op.kernel.data for f in host_functions(module) for op in f.body.block.ops
              if isinstance(op, LaunchOp)}
    for name, kernel in kernels.items():
        if name not in called:
            kernel.detach()
            kernel.erase()
