"""The OpenCL target from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from targets.base import TargetError, TargetOptions, find_target
from tests.cli.conftest import Run


def test_the_code_of_a_model(strata: Run, small_model: Path) -> None:
    done = strata("lower", small_model, "--target", "opencl")
    assert done.status == 0 and "kernel void" in done.out


def test_each_pass_and_the_device_agree(strata: Run, small_model: Path) -> None:
    try:
        find_target("opencl").bind(TargetOptions()).running.check_machine()
    except TargetError as error:
        pytest.skip(str(error))
    done = strata("verify", small_model, "--dim", "n=5", "--dim", "m=3", "--target", "opencl")
    assert done.status == 0, done.err
