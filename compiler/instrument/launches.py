"""One launch of a kernel as a program of its own, to run its code on the buffers it had.

    host.func @main(%x0, %x1, %y1) {       x1 is written: y1 is a copy of it
      host.copy %x1, %y1
      host.launch @kernel(%x0, %y1)
    }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp

from dialects import block, host
from dialects.strata.types import Array, BufferType, buffer_of, element_of, tensor
from dialects.symbolic.symbol import Symbol


def written_buffers(kernel: block.KernelOp) -> list[int]:
    """The buffers that a kernel writes."""
    return [k for k, b in enumerate(kernel.buffers) if any(
        isinstance(use.operation, block.StoreOp) and use.operation.buffer is b for use in b.uses)]


def program_of(
    kernel: block.KernelOp, before: Sequence[Array], written: Sequence[int],
    sizes: Mapping[Symbol, int],
) -> ModuleOp:
    """A module that launches a kernel once, at these sizes."""
    types = [type_of(a) for a in before]
    own = kernel.clone()
    func = host.FuncOp.of("main", [f"x{k}" for k in range(len(types))],
                          [f"y{k}" for k in written],
                          [*types, *(types[k] for k in written)], [])
    body, given = func.body.block, list(func.body.block.args[:len(types)])
    for k, copy in zip(written, func.body.block.args[len(types):], strict=True):
        body.add_op(host.CopyOp.of(given[k], copy))
        given[k] = copy
    values = [sizes[name] for name in kernel.size_names]
    body.add_op(host.LaunchOp.of(own.sym_name.data, given, values))
    body.add_op(host.ReturnOp.create())
    return ModuleOp([func, own])


def type_of(array: Array) -> BufferType:
    """The type of a buffer that holds an array."""
    return buffer_of(tensor(element_of(array.dtype), array.shape))
