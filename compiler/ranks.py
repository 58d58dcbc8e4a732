"""This process among the ranks of a program: who it is, and how it joins the others.

`torchrun` tells each process its rank in environment variables. Nothing imports torch unless a
model is divided among ranks.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from compiler.diagnostics import Problem, StrataError

PATIENCE = 25
"""Seconds after which a rank gives up waiting for another one."""
_PARENT_DIED = 1  # PR_SET_PDEATHSIG


def own_rank(mesh: object) -> int | None:
    """The rank of this process, if there is a mesh and torch.distributed is initialized; none for
    what is no text, which is refused later."""
    torch: Any = sys.modules.get("torch") if isinstance(mesh, str) and mesh else None
    if torch is None or not torch.distributed.is_available():
        return None
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else None


def speaks() -> bool:
    """Whether this process tells what all ranks would tell: the first rank, or the only process."""
    return own_rank("any") in (None, 0)


@contextmanager
def among_ranks(mesh: str, target: str) -> Generator[bool]:
    """Join the other processes of `torchrun`; without a mesh, do nothing. Tells whether this is the
    first rank, which speaks for all.

    Raises StrataError if there are not as many ranks as the mesh has, or if some do not come.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if mesh:
        _check(mesh, world)
    if not mesh or world == 1:
        yield True
        return
    from targets.communication import forget_groups

    _end_with_launcher()
    dist, torch = distributed()
    on_gpu = target == "cuda"
    if on_gpu:
        _choose_device(torch)
    _meet(dist, "nccl" if on_gpu else "gloo", world)
    try:
        yield dist.get_rank() == 0
    finally:
        if not on_gpu:  # NCCL would wait for graphs that hold its kernels
            forget_groups()
            dist.destroy_process_group()
            gc.collect()  # gloo's threads must end before the interpreter does


def _choose_device(torch: Any) -> None:
    """Take the device of this rank's place on its host. Raises StrataError if there is none."""
    place, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if place >= count:
        raise StrataError(f"rank {os.environ.get('RANK', place)} has no device", [Problem(
            f"it is number {place + 1} on this host, which has {count} GPUs",
            hint="start as many ranks as there are GPUs, or --target cpu")])
    torch.cuda.set_device(place)


def _meet(dist: Any, backend: str, world: int) -> None:
    """Connect with the other ranks. Raises StrataError if they do not come."""
    from datetime import timedelta

    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=PATIENCE))
    except (RuntimeError, ValueError) as error:  # ValueError: a variable of torchrun is missing
        raise StrataError("the other ranks did not come", [Problem(
            f"{world} processes were to meet at {os.environ.get('MASTER_ADDR', '?')}:"
            f"{os.environ.get('MASTER_PORT', '?')}: {str(error).strip().splitlines()[0]}",
            hint="the message of the rank that failed says why")]) from error


def distributed() -> tuple[Any, Any]:
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        raise StrataError("a model can only be divided among ranks with PyTorch", [Problem(
            str(error), hint='pip install "strata-compiler[torch]"')]) from error
    return dist, torch


def _check(mesh: str, world: int) -> None:
    from dialects.ranks.mesh import Mesh

    try:
        wanted = Mesh.parse(mesh).world
    except ValueError as error:
        raise StrataError("the options cannot be used", [Problem(f"mesh is {mesh!r}: {error}")]
                          ) from error
    if wanted != world:
        running = "1 process is" if world == 1 else f"{world} processes are"
        raise StrataError(f"the mesh {mesh} has {wanted} ranks, and {running} running", [Problem(
            "each rank is a process", hint=f"torchrun --nproc-per-node {wanted} -m compiler ...")])


def refuse_mesh(mesh: str, what: str) -> None:
    """Raise StrataError for a mesh, where only programs of one process are measured."""
    if mesh:
        raise StrataError(f"{what} measures programs of one process", [Problem(
            f"the mesh {mesh} has several ranks", hint="leave out --mesh")])


# ---------------------------------------------------------------------- faults
def _end_with_launcher() -> None:
    """Let the system end this process when torchrun dies, which cannot end it any more then."""
    if "TORCHELASTIC_RUN_ID" in os.environ and sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGTERM)
