"""This process among the ranks of a program: who it is, and how it joins the others.

`torchrun` tells each process its rank in environment variables. Nothing imports torch unless a
model is divided among ranks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from compiler.diagnostics import Problem, StrataError, some_of
from compiler.version import __version__

PATIENCE = 25
"""Seconds after which a rank gives up waiting for another one."""
_SAMPLE = 1 << 20
"""The bytes at both ends of a model's file by which files are compared."""


def own_rank(mesh: str) -> int | None:
    """The rank of this process, if there is a mesh and torch.distributed is initialized."""
    torch: Any = sys.modules.get("torch") if mesh else None
    if torch is None or not torch.distributed.is_available():
        return None
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else None


@contextmanager
def among_ranks(mesh: str, target: str) -> Generator[bool]:
    """Join the other processes of `torchrun`; without a mesh, do nothing. Tells whether this is the
    first rank, which speaks for all.

    Raises StrataError if there are not as many ranks as the mesh has.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if mesh:
        _check(mesh, world)
    if not mesh or world == 1:
        yield True
        return
    dist, torch = _distributed()
    on_gpu = target == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(seconds=PATIENCE))
    try:
        yield dist.get_rank() == 0
    finally:
        if not on_gpu:  # NCCL would wait for graphs that hold its kernels
            dist.destroy_process_group()


def _distributed() -> tuple[Any, Any]:
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


# ---------------------------------------------------------------------- agreement
def check_agreement(exe: Any) -> None:
    """Compare an executable with those of other ranks; without a mesh or ranks, do nothing.

    Raises StrataError if they differ, since the ranks would wait for each other for ever."""
    if own_rank(exe.options.mesh) is None:
        return
    dist, _ = _distributed()
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, digest_of(exe))
    names = sorted({name for said in found for name in said})
    differing = [name for name in names if len({said.get(name) for said in found}) > 1]
    if differing:
        raise StrataError("the ranks have different programs", [Problem(
            f"rank {dist.get_rank()} and others differ in {some_of(differing)}",
            hint="start all ranks with the same model, options and version of Strata")])


def digest_of(exe: Any) -> dict[str, str]:
    """What must be equal on all ranks, by its name for messages."""
    signature = exe.signature
    said = {"the version": __version__, "the mesh": exe.options.mesh,
            "the target": exe.options.target, "the precision": exe.options.precision,
            "inputs and outputs": f"{signature.input_names} {[*map(str, signature.input_types)]} "
                                  f"{signature.output_names}",
            "collective operations": str([e.facts() for e in exe.loaded.general.exchanges]),
            "the model's file": _file_text(str(exe.model))}
    return {name: _hash(text.encode()) for name, text in said.items()}


def _file_text(model: str) -> str:
    """The size of a model's file, and a hash of both its ends; empty if there is none."""
    path = model.partition(".py:")[0] + ".py" if ".py:" in model else model
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            ends = file.read(_SAMPLE)
            file.seek(max(size - _SAMPLE, 0))
            ends += file.read()
    except OSError:
        return ""
    return f"{size} {_hash(ends)}"


def _hash(data: bytes) -> str:
    import hashlib  # only ranks need it

    return hashlib.sha256(data).hexdigest()
