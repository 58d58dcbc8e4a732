"""Checks that the plan of a host function can be written to a file and read back."""

from __future__ import annotations

import json
from itertools import product

from xdsl.dialects.builtin import ModuleOp

from dialects.host import host_function
from targets.cuda.runtime.donation import donated, with_donations
from targets.cuda.runtime.plan import is_straight, plan_host
from targets.cuda.runtime.planned import HostPlan, constant_buffers


def read_back(plan: HostPlan) -> HostPlan:
    """What a file holds of a plan."""
    return HostPlan.read(json.loads(json.dumps(plan.facts())))


def check_plan(module: ModuleOp) -> HostPlan | None:
    """The plan of a module at block level, compared with what is read back; None for a function
    with control flow."""
    if not is_straight(host_function(module)):
        return None
    plan = plan_host(module)
    again = read_back(plan)
    assert json.dumps(again.facts()) == json.dumps(plan.facts())  # a NaN equals no other
    assert all(kernel.operation is None for kernel in again.kernels)
    for one, other in zip(plan.kernels, again.kernels, strict=True):
        assert (one.strides, one.counts) == (other.strides, other.counts)
    for pair in product(range(len(plan.outputs)), range(len(plan.inputs))):
        pairs = dict([pair])
        assert donated(plan, pairs) == donated(again, pairs)
        assert len(with_donations(plan, pairs)) == len(with_donations(again, pairs))
    assert [*constant_buffers(plan).values()] == [*constant_buffers(again).values()]
    return plan
