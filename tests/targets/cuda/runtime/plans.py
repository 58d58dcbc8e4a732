"""Checks that the plan of a host function can be written to a file and read back."""

from __future__ import annotations

import json
from itertools import product
from typing import TypeVar

from xdsl.dialects.builtin import ModuleOp

from dialects.host import host_function
from targets.cuda.planning.functions import planned_functions
from targets.cuda.planning.plan import is_straight, plan_host, planned_kernels
from targets.cuda.runtime.control import ControlPlan
from targets.cuda.runtime.memory.donation import donated, with_donations
from targets.cuda.runtime.planned import HostPlan, constant_buffers

Plan = TypeVar("Plan", HostPlan, ControlPlan)


def read_back(plan: Plan) -> Plan:
    """What a file holds of a plan."""
    return type(plan).read(json.loads(json.dumps(plan.facts())))


def control_plan(module: ModuleOp) -> ControlPlan:
    """The plan of a module's functions, to run step by step."""
    functions = planned_functions(module, planned_kernels(module))
    return ControlPlan(tuple(functions), host_function(module).sym_name.data)


def check_plan(module: ModuleOp) -> HostPlan | None:
    """The plans of a module at block level, compared with what is read back. Returns that of a
    straight function; None for one with control flow."""
    functions = control_plan(module)
    _check_same(functions, read_back(functions))
    if not is_straight(host_function(module)):
        return None
    plan = plan_host(module)
    again = read_back(plan)
    _check_same(plan, again)
    for pair in product(range(len(plan.outputs)), range(len(plan.inputs))):
        pairs = dict([pair])
        assert donated(plan, pairs) == donated(again, pairs)
        assert len(with_donations(plan, pairs)) == len(with_donations(again, pairs))
    assert [*constant_buffers(plan).values()] == [*constant_buffers(again).values()]
    return plan


def _check_same(plan: Plan, again: Plan) -> None:
    assert json.dumps(again.facts()) == json.dumps(plan.facts())  # a NaN equals no other
    assert all(kernel.operation is None for kernel in again.kernels)
    for one, other in zip(plan.kernels, again.kernels, strict=True):
        assert (one.strides, one.counts) == (other.strides, other.counts)
