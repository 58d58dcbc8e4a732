"""Plans of host functions as data: what is read back says the same, without any operation.

`tests/pipeline/test_samples_everywhere.py` checks those of all operator samples.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from targets.cuda.runtime.planned import RESIDENT, Place
from tests import processes
from tests.control.programs import PROGRAMS, Program
from tests.counts.count import SM_90, Subject, lowered
from tests.counts.models import MODELS
from tests.targets.cuda.runtime.control_programs import lowered as lowered_program
from tests.targets.cuda.runtime.plans import check_plan, read_back


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_plans_of_models_are_read_back(make: Callable[[], Subject]) -> None:
    _, state, _ = lowered(make(), SM_90)
    plan = check_plan(state.module)
    if plan is None:
        return
    weights: WeightStore = state.context.weights
    found = [c.array(weights) for c in plan.constants]
    again = [c.array(weights) for c in read_back(plan).constants]
    assert all(a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
               for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_plans_of_programs_that_decide_are_read_back(program: Program) -> None:
    module, _ = lowered_program(program.text)
    check_plan(module)


def test_addresses_are_not_written() -> None:
    with pytest.raises(ValueError, match="in this process only"):
        Place(RESIDENT, Expr.of(1 << 40), Expr.of(4)).facts()


def test_reading_needs_no_ir() -> None:
    code = ("import sys; from targets.cuda.runtime.planned import HostPlan; "
            "print('xdsl' in sys.modules)")
    done = processes.run([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE)
    assert done.stdout == "False\n"
