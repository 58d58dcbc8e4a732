"""The predicted seconds of kernels, and of the launches of a host function one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.block import KernelOp
from dialects.host import host_functions
from dialects.host.ops import AllocOp, CopyOp, LaunchOp, ViewOp
from dialects.strata.types import BufferType, byte_width
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from targets.cuda.machine import WARP, Machine
from targets.cuda.prediction.work import Work, busy

PLAIN = 24
"""Registers of a thread besides its elements, in kernels without products."""


@dataclass(frozen=True)
class Prediction:
    """A launch: its kernel, seconds, bytes of memory, and programs."""

    kernel: str
    seconds: float
    bytes: int
    programs: int


def predict(module: ModuleOp, machine: Machine, sizes: Mapping[Symbol, int]) -> list[Prediction]:
    """The launches and copies of a module at block level that happen at these sizes, in order. A
    loop's body counts once."""
    kernels = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, KernelOp)}
    works: dict[tuple[str, tuple[tuple[Symbol, int], ...]], Work] = {}
    found: list[Prediction] = []
    for op in _steps(module):
        if isinstance(op, CopyOp):
            found.append(_copied(op, machine, sizes))
            continue
        if not op.happens(sizes):
            continue
        kernel = kernels[op.kernel.data]
        own = {name: int(size.evaluate(sizes)) for name, size in zip(
            kernel.size_names, op.sizes.data, strict=True)}
        key = op.kernel.data, tuple(own.items())
        if key not in works:
            works[key] = Work(kernel, own, machine)
        found.append(_launched(op, works[key], machine, sizes))
    return found


def launch_seconds(op: LaunchOp, kernel: KernelOp, machine: Machine) -> float:
    """The seconds of a launch of a kernel of a static grid in the place of the launch's own."""
    return _launched(op, Work(kernel, {}, machine), machine, {}).seconds


def total(steps: list[Prediction], machine: Machine) -> float:
    """Seconds of a graph of launches one after another; each but the first starts early."""
    facts = machine.fitted
    more = (facts.parts.adding - facts.products.start) * (len(steps) - 1)
    return sum(s.seconds for s in steps) + (more if steps else 0)


def _steps(module: ModuleOp) -> Iterator[LaunchOp | CopyOp]:
    for function in host_functions(module):
        yield from (op for op in function.walk() if isinstance(op, LaunchOp | CopyOp))


def _launched(
    op: LaunchOp, work: Work, machine: Machine, sizes: Mapping[Symbol, int]
) -> Prediction:
    facts, programs = machine.fitted.products, work.programs
    each = max(1, ceil(programs / machine.multiprocessors))
    turns = ceil(each / at_a_time(work, machine))
    computed = max(turns * work.cost.alone, work.cost.alone + (each - 1) * busy(
        work.cost, machine))
    bytes_ = sum(_from_memory(given, min(work.touched[own] * programs, _bytes(given, sizes)),
                              machine) for own, given in zip(
        work.kernel.buffers, op.buffers, strict=True))
    moved = bytes_ / (facts.memory * machine.bandwidth * 1e9)
    seconds = facts.start + max(computed, moved) + facts.beside_memory * min(computed, moved)
    return Prediction(work.kernel.sym_name.data, seconds, bytes_, programs)


def at_a_time(work: Work, machine: Machine) -> int:
    """How many programs a multiprocessor holds, by threads, registers and shared memory."""
    threads = WARP * work.warps
    needed = machine.fitted.products.registers if work.has_products else PLAIN
    registers = min(machine.thread_registers, needed + work.held // threads)
    room = [machine.threads // threads, machine.registers // (registers * threads)]
    room += [machine.shared // work.shared] if work.shared else []
    return max(1, min(room))


def _from_memory(value: SSAValue, bytes_: int, machine: Machine) -> int:
    """Bytes that memory moves: none of an intermediate that stays in the cache."""
    owner = value.owner
    while isinstance(owner, ViewOp):
        owner = owner.source.owner
    kept = isinstance(owner, AllocOp) and bytes_ <= machine.cache // 2
    return 0 if kept else bytes_


def _copied(op: CopyOp, machine: Machine, sizes: Mapping[Symbol, int]) -> Prediction:
    bytes_ = _bytes(op.source, sizes) + _bytes(op.target, sizes)
    facts = machine.fitted.products
    return Prediction("copy", facts.start + bytes_ / (facts.memory * machine.bandwidth * 1e9),
                      bytes_, 0)


def _bytes(value: SSAValue, sizes: Mapping[Symbol, int]) -> int:
    assert isinstance(value.type, BufferType)
    unknown = {s: 16 for s in product(value.type.shape).symbols}
    return int(product(value.type.shape).evaluate({**unknown, **sizes})) * byte_width(
        value.type.element)
