"""The process groups of torch.distributed that programs name. Loads neither torch nor xDSL."""

from __future__ import annotations

from typing import Any

from compiler.frontend.faults import Fault
from compiler.frontend.torch.library import torch_module


def ranks_of(given: Any) -> tuple[str, tuple[int, ...]]:
    """The name of a process group, and its ranks. Raises Fault if there is none."""
    c10d = torch_module("torch.distributed.distributed_c10d")
    name = getattr(given, "group_name", given)
    try:
        ranks = c10d.get_process_group_ranks(c10d._resolve_process_group(name))
    except (RuntimeError, LookupError, ValueError) as error:
        raise Fault(f"the process group {name!r} does not exist: {error}",
                    "call torch.distributed.init_process_group before compiling") from error
    return str(name), tuple(ranks)
