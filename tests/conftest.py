"""What all tests share: which ones can run here, and where larger models are."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ZOO_VARIABLE = "STRATA_ZOO"
FEATURES_VARIABLE = "STRATA_CPU_FEATURES"
"""Set by `make test FEATURES=...`."""


def cuda_devices() -> int:
    """The number of CUDA devices that the driver offers; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def pytest_configure() -> None:
    """Keep no compiled models: tests are of the compiler, and what they replace in it no key knows.
    """
    os.environ["STRATA_CACHE_SIZE"] = "0"
    os.environ["STRATA_TUNED"] = "off"  # nor what was tuned on this machine
    if os.environ.get(FEATURES_VARIABLE):
        _check_features()


def _check_features() -> None:
    """Refuse a feature set that this machine does not have before any test runs."""
    from targets.cpu.machine import machine_of

    try:
        machine_of()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which would visit a million objects ten times; later
    it passes over them, as they live until the end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    """Let all be collected: libraries complain about what is left."""
    gc.unfreeze()


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Skip tests with the marker `gpu` where there is no CUDA device."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not cuda_devices():
        skip = pytest.mark.skip(reason="needs an NVIDIA GPU, and the driver offers none here")
        for item in marked:
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def valid_code() -> Iterator[None]:
    """LLVM checks the code that tests compile in this process. Of invalid code, such as a value
    that only one branch computes, it otherwise makes anything, without an error.
    """
    from targets.cpu.build import worker

    parse = worker.parse

    def checked(text: str, *generator: str) -> Any:
        module = parse(text, *generator)
        module.verify()
        return module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "parse", checked)
        yield


@pytest.fixture(scope="session")
def zoo_model() -> Callable[[str], Path]:
    """`zoo_model("resnet50")`: the model's file; skips the test where there is none."""
    def find(name: str) -> Path:
        folder = os.environ.get(ZOO_VARIABLE)
        if not folder:
            pytest.skip(f"needs a folder of models: set {ZOO_VARIABLE}")
        path = Path(folder) / f"{name}.onnx"
        if not path.is_file():
            pytest.skip(f"{ZOO_VARIABLE} holds no {name}.onnx")
        return path
    return find
