"""How many accesses of the operator samples are proven, assumed and checked, so that a rise shows.

A change that leaves more to checks or assumptions than before has a reason, or has lost a proof.
What one kernel alone does not prove is of three kinds, and each has a bound of its own: a check
costs time at each call, an assumption limits the sizes that a model accepts, and a proof from what
other kernels store costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.block import KernelOp
from dialects.block.accesses import Access
from dialects.host import LaunchOp, host_functions
from dialects.strata.sizes import assumptions_of
from passes.analyses.block.bounds import Judge, shape_facts
from passes.analyses.block.contents import Contents, Kernel
from passes.base import StrataContext
from passes.block.prove_bounds import BlockProveBounds
from targets.base import TargetOptions, find_target
from tests.lowering import STEPS, lower
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.op_samples.pipeline_samples import PIPELINE_SAMPLES

ALL = [*SAMPLES, *PIPELINE_SAMPLES]
FIRST = list({s.op: s for s in reversed(SAMPLES) if s.dims}.values())
"""One sample of each operation, with open sizes."""


def lowered(samples: Sequence[Sample], target: str) -> Iterator[tuple[ModuleOp, StrataContext]]:
    """Each sample with open sizes, as it is before bounds are checked."""
    for sample in samples:
        module, _, context = build_module(sample, True)
        strata = find_target(target).bind(TargetOptions(features="avx2")
            if target == "cpu" else TargetOptions()).context(context.weights)
        list(lower(module, strata, STEPS[:STEPS.index(BlockProveBounds.name)]))
        yield module, strata


def count(samples: Sequence[Sample], target: str) -> Counter[str]:
    """Accesses by what keeps them inside; which checks and assumptions the pass has added."""
    found = Counter[str]()
    for module, context in lowered(samples, target):
        before = _assumptions(module)
        BlockProveBounds().apply(context, module)
        found["new assumptions"] += _assumptions(module) - before
        found["new checks"] += sum(r.pass_name == BlockProveBounds.name for r in context.remarks)
        found.update(_kinds(module, context))
    return found


def _kinds(module: ModuleOp, context: StrataContext) -> Iterator[str]:
    """What keeps each access of each kernel inside."""
    kernels = {op.sym_name.data: Kernel.of(op) for op in module.body.block.ops
               if isinstance(op, KernelOp)}
    assuming = _assuming(module, context, kernels)
    for access in (a for kernel in kernels.values() for a in kernel.accesses):
        if access.is_checked:
            yield "checked"
        elif access.dim not in access.op.assumed_dims:
            yield "proven"
        else:
            yield "assumed" if access in assuming else "stored"


def _assuming(
    module: ModuleOp, context: StrataContext, kernels: Mapping[str, Kernel]
) -> list[Access]:
    """The accesses that what other kernels store does not prove, at one launch at least."""
    found: list[Access] = []
    for function in host_functions(module):
        contents = Contents(function, kernels, context.weights)
        for op in function.body.block.ops:
            if isinstance(op, LaunchOp) and op.kernel.data in kernels:
                kernel = kernels[op.kernel.data]
                sizes = kernel.sizes(op)
                judge = Judge(contents.values_of(op), sizes, list(shape_facts(kernel, sizes)))
                found += [a for a in kernel.accesses
                          if a.dim in a.op.assumed_dims and not judge.prove(a)]
    return found


def _assumptions(module: ModuleOp) -> int:
    """Those about how sizes fit each other."""
    return sum(not a.is_limit for f in host_functions(module) for a in assumptions_of(f))


@pytest.mark.parametrize(("target", "assumed", "added"), [("cpu", 10, 2), ("cuda", 10, 3)])
def test_few_accesses_need_more_than_a_proof(target: str, assumed: int, added: int) -> None:
    found = count(FIRST, target)
    assert found["proven"] > 250
    assert found["assumed"] + found["stored"] == assumed
    assert found["new checks"] + found["new assumptions"] == added


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_few_accesses_of_all_samples_do(target: str) -> None:
    found = count([s for s in ALL if s.dims], target)
    total = sum(found[kind] for kind in ("proven", "stored", "assumed", "checked"))
    assert found["new checks"] < 0.003 * total
    assert found["assumed"] < 0.01 * total
    assert found["stored"] < 0.03 * total
    assert found["assumed"] + found["stored"] + found["new checks"] < 0.03 * total
