"""What each rank does in tests of several processes.

    python -m tests.ranks.jobs FOLDER DEVICE SECONDS NAME ...

Every job returns what the test compares. The results of rank 0 go to `FOLDER/rank-0.json`, after
each job. Jobs consist of steps of at most SECONDS (`steps.py`); `running.py` starts the processes.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tests.ranks.programs import Case, SummingCase, cases, summing_cases
from tests.ranks.steps import last_step, limit_steps, step

PATIENCE = 0.75
"""After which part of a step's time torch.distributed gives up waiting for a rank."""


# ---------------------------------------------------------------------- collectives
def collectives() -> list[str]:
    """The native code of every kind against its meaning; what differs."""
    import torch.distributed as dist

    from compiler import compile as compile_model
    from dialects.graph.collective import CollectiveOp

    count, found = dist.get_world_size(), list[str]()
    parts = (tuple(range(count)),) if count < 4 else ((0, 2), (1, 3))
    chosen = cases(parts, ("f32",))
    if count == 2:
        chosen += [Case("all_reduce", e, 'reduce = "sum", ') for e in ("f16", "bf16", "i64")]
    if device() == "cuda":  # each is compiled for a second or two; NCCL reduces alike in both
        chosen = [c for c in chosen if c.kind != "reduce_scatter" or '"sum"' in c.attributes]
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            step(f"compile {case}")
            path = Path(folder) / "case.mlir"
            path.write_text(case.text)
            exe = compile_model(path, target=device(), cache="off", threads=2)
            how = next(op.collective for op in case.module().walk()
                       if isinstance(op, CollectiveOp))
            for rows in (5, 1):
                step(f"run it with {rows} rows")
                found += _differences(case, exe, how, dist.get_rank(), rows)
    return found


def _differences(case: Case, exe: Any, how: Any, rank: int, rows: int) -> list[str]:
    got = exe(case.inputs(rank, rows))
    same = all(np.array_equal(a.astype(np.float64), b.astype(np.float64))
               for a, b in zip(got, case.expected(rank, rows, how), strict=True))
    return [] if same else [f"{case} with {rows} rows"]


# ---------------------------------------------------------------------- models
class Compiled(logging.Handler):
    """Collects the kinds of collective operations in compiled graphs, and what runs eagerly."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[list[str]] = []
        self.eager: list[str] = []
        self.made: list[Any] = []
        """The loaded programs of compiled graphs."""
        log = logging.getLogger("strata")
        log.setLevel(logging.DEBUG)
        log.handlers = [self]  # instead of that of the job before

    def emit(self, record: logging.LogRecord) -> None:
        made = getattr(record, "strata_compiled", None)
        if made is not None:
            loaded = made.executable.loaded.general
            self.made.append(loaded)
            self.kinds.append([e.how.kind for e in loaded.exchanges])
        if hasattr(record, "strata_eager"):
            self.eager.append(record.getMessage())


def device() -> str:
    """The kind of device on which the ranks work."""
    return os.environ["DEVICE"]


def _models() -> Any:
    from tests.ranks import models

    return models


def tensor_parallel() -> dict[str, Any]:
    """A transformer's block, divided by `parallelize_module`, in inference."""
    import torch

    models, seen = _models(), Compiled()
    one, divided = models.divided_block()
    x = torch.randn(2, 7, models.WIDTH, generator=torch.Generator().manual_seed(1)).to(device())
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        compiled = torch.compile(divided, backend="strata", fullgraph=True)
        errors = list[float]()
        for given in (x, x[:, :3], 2 * x):
            step(f"a call with {list(given.shape)}")
            errors.append(models.error(compiled(given), one(given)))
    return {"errors": errors, "kinds": seen.kinds, "eager": seen.eager,
            "breaks": sum(torch._dynamo.utils.counters["graph_break"].values())}


def tensor_parallel_training() -> dict[str, Any]:
    """The same in training; gradients are those of one process."""
    import torch

    models, seen = _models(), Compiled()
    one, divided = models.divided_block()
    x = torch.randn(2, 5, models.WIDTH, generator=torch.Generator().manual_seed(1)).to(device())
    compiled = torch.compile(divided, backend="strata", fullgraph=True)
    for model in (one, compiled):
        step("the divided model" if model is compiled else "the undivided model")
        model(x).square().mean().backward()
    step("gather the gradients")
    wanted, got = dict(one.named_parameters()), dict(divided.named_parameters())
    errors = [models.error(models.whole(got[name].grad), p.grad) for name, p in wanted.items()]
    return {"errors": errors, "kinds": seen.kinds, "eager": seen.eager}


def ddp() -> dict[str, Any]:
    """Training with DDP, whose all-reduce is traced into the backward graph."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    models, seen = _models(), Compiled()
    torch._dynamo.config.optimize_ddp = "python_reducer"
    inner = models.network()
    forward = torch.compile(DistributedDataParallel(inner), backend="strata", fullgraph=True)
    backward = torch.compile(backend="strata", fullgraph=True)
    with torch._dynamo.compiled_autograd._enable(backward):
        models.train(forward, list(inner.parameters()))
    wanted = models.trained()
    errors = [models.error(a, b) for a, b in zip(inner.parameters(), wanted, strict=True)]
    return {"errors": errors, "kinds": seen.kinds, "eager": seen.eager}


def fsdp() -> dict[str, Any]:
    """Training with FSDP2, whose hooks gather parameters around compiled graphs."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    models, seen = _models(), Compiled()
    model = models.network()
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for part in (*model.children(), model):
        fully_shard(part, mesh=mesh)
    models.train(torch.compile(model, backend="strata"), list(model.parameters()))
    got = [models.whole(p) for p in model.parameters()]
    errors = [models.error(a, b) for a, b in zip(got, models.trained(), strict=True)]
    return {"errors": errors, "kinds": seen.kinds, "eager": seen.eager}


def wrong_group() -> str:
    """The error of a program for more ranks than there are."""
    from compiler import compile as compile_model

    case = Case("all_reduce", "f32", 'reduce = "sum", ', ((0, 1, 2, 3, 4, 5, 6, 7),))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.mlir"
        path.write_text(case.text)
        exe = compile_model(path, target="cpu", cache="off", threads=1)
        try:
            exe(case.inputs(0, 1))
        except Exception as error:
            return str(error)
    return ""


def one_graph() -> dict[str, Any]:
    """A step on GPUs: how it runs, at changing addresses, and many times in a row."""
    import torch

    models, seen = _models(), Compiled()
    one, divided = models.divided_block()
    generator = torch.Generator().manual_seed(1)
    xs = [torch.randn(2, 7, models.WIDTH, generator=generator).to(device()) for _ in range(3)]
    with torch.no_grad():
        compiled = torch.compile(divided, backend="strata", fullgraph=True)
        errors = list[float]()
        for x in xs:
            step(f"call {len(errors)}")
            errors.append(models.error(compiled(x), one(x)))
        for k in range(1000):
            if k % 100 == 0:
                step(f"calls from {k} on")
            if k % 100 == torch.distributed.get_rank():
                torch.cuda._sleep(10_000_000)  # a rank that is late
            got = compiled(xs[k % 3])
        step("wait for the last call")
        errors.append(models.error(got, one(xs[999 % 3])))
    [loaded] = seen.made
    graphs = [r.graph is not None for r in loaded._states.take().runner._ready.values()]
    return {"errors": errors, "eager": seen.eager, "kinds": seen.kinds, "graphs": graphs}


def lost() -> dict[str, Any]:
    """A step of whose ranks one is gone. The others end with the name of an exchange."""
    import torch

    models, seen = _models(), Compiled()
    _, divided = models.divided_block()
    x = torch.randn(2, 7, models.WIDTH).to(device())
    with torch.no_grad():
        compiled = torch.compile(divided, backend="strata", fullgraph=True)
        step("a call of all ranks")
        compiled(x).sum().item()
        if torch.distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        step("a call without rank 1")
        compiled(x).sum().item()
    return {"failed": "the call ended as if rank 1 were there", "kinds": seen.kinds}


def exchanges() -> dict[str, Any]:
    """Sums over ranks inside kernels: what differs, and which kernels exchange tiles."""
    import torch.distributed as dist

    from compiler import compile as compile_model

    rank, count, wrong, programs = dist.get_rank(), dist.get_world_size(), list[str](), list[int]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.mlir"
        for case in summing_cases(count):
            step(f"compile {case}")
            path.write_text(case.text)
            exe = compile_model(path, target=device(), cache="off", threads=2)
            programs += [e.programs for e in exe.loaded.general.exchanges]
            step("run it 20 times")
            for turn in range(20):
                if turn % 5 == rank:
                    time.sleep(0.01)  # a rank that is late
                got = exe(*case.inputs(rank, turn))[0]
                if not np.array_equal(got.astype(np.float64), case.expected(turn)):
                    wrong.append(f"{case} in turn {turn}")
    return {"wrong": wrong, "programs": programs}


def overlapped() -> dict[str, Any]:
    """A product that is computed in parts, which are exchanged meanwhile: how many exchanges there
    are, and what differs in calls of which one rank is late."""
    import torch.distributed as dist

    from compiler import compile as compile_model

    case, wrong = SummingCase(8192, 2048, 4096, "bf16", dist.get_world_size()), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.mlir"
        path.write_text(case.text)
        step("compile")
        exe = compile_model(path, target=device(), cache="off", threads=2)
    step("compute what is expected")
    given, wanted = case.inputs(dist.get_rank(), 0), case.expected(0)
    for turn in range(20):
        step(f"call {turn}")
        if turn % 5 == dist.get_rank():
            time.sleep(0.01)
        if not np.array_equal(exe(*given)[0].astype(np.float64), wanted):
            wrong.append(f"{case} in turn {turn}")
    return {"wrong": wrong, "exchanges": len(exe.loaded.general.exchanges)}


def stuck() -> None:
    """Rank 1 never comes, to test what is said then."""
    import torch.distributed as dist

    step("wait for rank 1")
    if dist.get_rank() == 1:
        time.sleep(1000)
    dist.barrier()


JOBS: dict[str, Callable[[], Any]] = {
    f.__name__: f for f in (collectives, tensor_parallel, tensor_parallel_training, ddp, fsdp,
                            wrong_group, one_graph, lost, exchanges,
                            overlapped, stuck)}


def main(folder: Path, kind: str, seconds: float, names: Sequence[str]) -> None:
    os.environ["DEVICE"] = kind
    step("import PyTorch")
    import torch
    import torch.distributed as dist

    from compiler import free_graphs

    limit_steps(seconds)
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if kind == "cuda":
        torch.cuda.set_device(rank)
    step("meet the other ranks")
    backend = {"cpu": "gloo", "cuda": "nccl"}[kind]
    dist.init_process_group(backend, timeout=timedelta(seconds=PATIENCE * seconds))
    results: dict[str, Any] = {}
    for name in names:
        torch._dynamo.reset()  # no job makes sizes dynamic for the next one
        step(f"job {name}")
        try:
            results[name] = JOBS[name]()
        except Exception:
            results[name] = {"failed": traceback.format_exc()}
        (folder / f"rank-{rank}.json").write_text(json.dumps(results))
        logging.getLogger("strata").handlers = []  # which hold programs
    step("leave the other ranks")
    if sys.version_info < (3, 12):
        free_graphs()
    dist.destroy_process_group()
    last_step()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:])
