"""Finds the operations of a module that others call by name, and checks calls of kernels.

A kernel has `sym_name`, `size_names` and `taken`: the types of what it reads, then of what it
writes. Kernels of all levels are called in the same way, by values (`loop.call`) or on buffers
(`host.launch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Operation
from xdsl.utils.exceptions import VerifyException

from dialects.strata.types import Shaped
from dialects.symbolic.symbol import Symbol

_TABLES: WeakKeyDictionary[Block, dict[str, Operation]] = WeakKeyDictionary()
"""For each module's block the operations with names, as last seen. An entry counts only while its
operation is still in the block and still has the name."""


class Kernel(Protocol):
    """What a call needs to know of a kernel."""

    @property
    def size_names(self) -> list[Symbol]: ...

    @property
    def taken(self) -> Sequence[Attribute]: ...


def callee_of(op: Operation, name: str) -> Operation | None:
    """The operation with a name in the module around `op`; None if there is none."""
    module = _module_of(op)
    if module is None:
        return None
    block = module.body.block
    found = _TABLES.get(block, {}).get(name)
    if found is None or found.parent is not block or _name_of(found) != name:
        table = {_name_of(other): other for other in reversed(list(block.ops))}
        _TABLES[block] = table
        found = table.get(name)
    return found


def _module_of(op: Operation) -> ModuleOp | None:
    root = op
    while (parent := root.parent_op()) is not None:
        root = parent
    return root if isinstance(root, ModuleOp) else None


def _name_of(op: Operation) -> str:
    name = op.properties.get("sym_name")
    return name.data if isinstance(name, StringAttr) else ""


def check_kernel_call(
    op: Operation, name: str, sizes: int, values: Sequence[Attribute]
) -> None:
    """C1 to C3 of calls and launches. Raises VerifyException.

    `sizes`: how many are passed. `values`: the types of what is passed, then of what is returned.
    An operation outside a module is not checked. Sizes are compared as far as they are constant,
    because caller and kernel name the others differently.
    """
    kernel = callee_of(op, name)
    if kernel is None:
        if _module_of(op) is None:
            return
        raise VerifyException(f"C1: {op.name} calls @{name}, and the module has no such kernel")
    if not hasattr(kernel, "taken"):
        raise VerifyException(f"C1: {op.name} calls @{name}, which is a {kernel.name}")
    about = cast(Kernel, kernel)
    if sizes != len(about.size_names):
        raise VerifyException(f"C2: {op.name} passes {sizes} sizes to @{name}, which takes "
                              f"{len(about.size_names)}")
    if not _fit(values, about.taken):
        raise VerifyException(f"C3: {op.name} calls @{name} with {_short(values)}, and it is "
                              f"defined for {_short(about.taken)}")


def _fit(given: Sequence[Attribute], wanted: Sequence[Attribute]) -> bool:
    return len(given) == len(wanted) and all(map(_fits, given, wanted))


def _fits(a: Attribute, b: Attribute) -> bool:
    """Whether two types have the same element, rank, and constant sizes."""
    if not (isinstance(a, Shaped) and isinstance(b, Shaped)) or a.element != b.element:
        return False
    return a.rank == b.rank and all(
        x.constant == y.constant or None in (x.constant, y.constant)
        for x, y in zip(a.shape, b.shape, strict=True))


def _short(types: Sequence[Any]) -> str:
    return ", ".join(getattr(type_, "short", str(type_)) for type_ in types) or "nothing"
