"""What can be seen of tensors in memory, and runs of a function compiled and eagerly that compare
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler.torch.backend import strata

REFUSED = "it raises an error"
Make = Callable[[], list[torch.Tensor]]


def flat(results: Any) -> list[Any]:
    if isinstance(results, (tuple, list)):
        return [leaf for item in results for leaf in flat(item)]
    return [results]


def seen(tensors: Sequence[Any]) -> list[Any]:
    """Values, types, strides and offsets, and which of the tensors share memory."""
    memory = [t.untyped_storage().data_ptr() if isinstance(t, torch.Tensor) and t.numel() else None
              for t in tensors]
    return [(*_facts(t), k if m is None else memory.index(m))
            for k, (t, m) in enumerate(zip(tensors, memory, strict=True))]


def _facts(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, torch.Tensor):
        return (value,)
    plain = value.resolve_conj().resolve_neg()
    return (str(value.dtype), tuple(value.shape), value.stride(), value.storage_offset(),
            value.is_conj(), value.is_neg(), repr(plain.tolist()))


def trace(f: Callable[..., Any], given: list[torch.Tensor]) -> list[Any]:
    """What is seen after a call, and again after writing into each result in turn."""
    try:
        results = flat(f(*given))
    except (RuntimeError, torch._dynamo.exc.TorchDynamoException):
        return [REFUSED]
    found = seen([*results, *given])
    for k, result in enumerate(results):
        if isinstance(result, torch.Tensor):
            _write(result, k)
            found += seen([*results, *given])
    return found


def is_refused(f: Callable[..., Any], given: list[torch.Tensor]) -> bool:
    """Whether eager mode raises an error."""
    return trace(f, given) == [REFUSED]


def _write(result: torch.Tensor, k: int) -> None:
    """Write into a result; PyTorch refuses it where elements share memory."""
    try:
        result.logical_not_() if result.dtype == torch.bool else result.add_(k + 1)
    except RuntimeError:
        result.fill_(k + 1)


def differences(
    f: Callable[..., Any], calls: Sequence[Make], *, target: str = "reference", **more: Any
) -> list[tuple[Any, Any]]:
    """What differs between a compiled and an eager function, for one call after another."""
    torch._dynamo.reset()
    options = {"target": target, "cache": "off", **({"threads": 1} if target == "cpu" else {})}
    fast = torch.compile(f, backend=strata, options=options, **more)
    with torch.no_grad():
        pairs = [(trace(fast, make()), trace(f, make())) for make in calls]
    return [(mine, theirs) for got, want in pairs
            for mine, theirs in zip(got, want, strict=False) if mine != theirs] or [
        (len(got), len(want)) for got, want in pairs if len(got) != len(want)]
