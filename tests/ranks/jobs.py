"""What each rank does in tests of several processes.

    python -m tests.ranks.jobs STORE DEVICE NAME ...

Every job returns what the test compares. The results go to the standard output as one JSON line.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tests.ranks.programs import Case, cases, summing_cases

PATIENCE = timedelta(seconds=60)


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
            path = Path(folder) / "case.mlir"
            path.write_text(case.text)
            exe = compile_model(path, target=device(), cache="off", threads=2)
            how = next(op.collective for op in case.module().walk()
                       if isinstance(op, CollectiveOp))
            for rows in (5, 1):
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
            self.made.append(made.loaded)
            self.kinds.append([e.how.kind for e in exchanges_of(made.loaded)])
        if hasattr(record, "strata_eager"):
            self.eager.append(record.getMessage())


def exchanges_of(loaded: Any) -> list[Any]:
    """The collective operations of a loaded program."""
    if device() == "cpu":
        return list(loaded.plan.exchanges)
    return [s.exchange for s in loaded.program.host.steps if hasattr(s, "exchange")]


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
        step = torch.compile(divided, backend="strata", fullgraph=True)
        errors = [models.error(step(given), one(given)) for given in (x, x[:, :3], 2 * x)]
    return {"errors": errors, "kinds": seen.kinds, "eager": seen.eager,
            "breaks": sum(torch._dynamo.utils.counters["graph_break"].values())}


def tensor_parallel_training() -> dict[str, Any]:
    """The same in training; gradients are those of one process."""
    import torch

    models, seen = _models(), Compiled()
    one, divided = models.divided_block()
    x = torch.randn(2, 5, models.WIDTH, generator=torch.Generator().manual_seed(1)).to(device())
    step = torch.compile(divided, backend="strata", fullgraph=True)
    for model in (one, step):
        model(x).square().mean().backward()
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
    step = torch.compile(DistributedDataParallel(inner), backend="strata", fullgraph=True)
    compiled = torch.compile(backend="strata", fullgraph=True)
    with torch._dynamo.compiled_autograd._enable(compiled):
        models.train(step, list(inner.parameters()))
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
        step = torch.compile(divided, backend="strata", fullgraph=True)
        errors = [models.error(step(x), one(x)) for x in xs]
        for k in range(1000):
            if k % 100 == torch.distributed.get_rank():
                torch.cuda._sleep(10_000_000)  # a rank that is late
            got = step(xs[k % 3])
        errors.append(models.error(got, one(xs[999 % 3])))
    [loaded] = seen.made
    graphs = [r.graph is not None for r in loaded._states.take().runner._ready.values()]
    return {"errors": errors, "eager": seen.eager, "kinds": seen.kinds, "graphs": graphs}


def exchanges() -> dict[str, Any]:
    """Sums over ranks inside kernels: what differs, and which kernels exchange tiles."""
    import torch.distributed as dist

    from compiler import compile as compile_model

    rank, count, wrong, programs = dist.get_rank(), dist.get_world_size(), list[str](), list[int]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.mlir"
        for case in summing_cases(count):
            path.write_text(case.text)
            exe = compile_model(path, target=device(), cache="off", threads=2)
            programs += [e.programs for e in exchanges_of(exe.loaded.general)]
            for turn in range(20):
                if turn % 5 == rank:
                    time.sleep(0.01)  # a rank that is late
                got = exe(*case.inputs(rank, turn))[0]
                if not np.array_equal(got.astype(np.float64), case.expected(turn)):
                    wrong.append(f"{case} in turn {turn}")
    return {"wrong": wrong, "programs": programs}


JOBS: dict[str, Callable[[], Any]] = {
    f.__name__: f for f in (collectives, tensor_parallel, tensor_parallel_training, ddp, fsdp,
                            wrong_group, one_graph, exchanges)}


def main(store: str, kind: str, names: Sequence[str]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["DEVICE"] = kind
    if kind == "cuda":
        torch.cuda.set_device(rank)
    backend = {"cpu": "gloo", "cuda": "nccl"}[kind]
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=count,
                            timeout=PATIENCE)
    results: dict[str, Any] = {}
    for name in names:
        torch._dynamo.reset()  # no job makes sizes dynamic for the next one
        faulthandler.dump_traceback_later(PATIENCE.total_seconds())  # where a rank hangs
        started = time.perf_counter()
        try:
            results[name] = JOBS[name]()
        except Exception:
            results[name] = {"failed": traceback.format_exc()}
        print(f"{name}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
        logging.getLogger("strata").handlers = []  # which hold programs
    print(json.dumps(results))
    torch._dynamo.reset()
    gc.collect()  # NCCL waits for graphs that hold its kernels
    faulthandler.dump_traceback_later(20)
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
