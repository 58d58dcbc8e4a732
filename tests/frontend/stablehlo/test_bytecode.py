"""Portable artifacts: what JAX exported, with XLA's results, and files that cannot be read."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import ImportOptions, MemoryModel
from compiler.frontend.stablehlo.bytecode.program import functions
from compiler.frontend.stablehlo.importer import import_bytecode
from tests.frontend.stablehlo.jax_artifacts import ARTIFACTS, KEPT

FILES = {name: (ARTIFACTS / f"{name}.mlirbc").read_bytes() for name in KEPT}


def kept(name: str) -> tuple[list[Any], list[Any]]:
    """Inputs and results."""
    with np.load(ARTIFACTS / f"{name}.npz") as arrays:
        files = arrays.files
        return ([arrays[f"arr_{k}"] for k in range(len(files)) if f"arr_{k}" in files],
                [arrays[f"result_{k}"] for k in range(len(files)) if f"result_{k}" in files])


def check(exe: Any, name: str) -> None:
    inputs, results = kept(name)
    for got, want in zip(exe(*inputs), results, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", KEPT)
def test_artifact(name: str) -> None:
    check(compiler.compile(ARTIFACTS / f"{name}.mlirbc", target="reference"), name)


def test_names_of_files(tmp_path: Path) -> None:
    """Exporters call such files so, or as they call texts."""
    for suffix in (".mlir", ".mlir.bc", ".stablehlo"):
        path = tmp_path / f"f{suffix}"
        shutil.copy(ARTIFACTS / "branches.mlirbc", path)
        check(compiler.compile(path, target="reference"), "branches")
    for suffix in (".mlir", ".mlirbc"):
        model = MemoryModel(f"f{suffix}", FILES["branches"])
        check(compiler.compile(model, target="reference"), "branches")


def test_sizes_stay_open() -> None:
    exe = compiler.compile(ARTIFACTS / "open_sizes.mlirbc", target="reference")
    assert exe.input_types == ["f32[arg0_0, 8]"]
    for rows in (1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        scores = np.exp(x @ x.T)
        np.testing.assert_allclose(exe(x)[0], scores / scores.sum(-1, keepdims=True) @ x,
                                   rtol=1e-4, atol=1e-5)


def numbers(data: bytes) -> list[int]:
    """Places in the first sections, where counts and indices are."""
    return list(range(4, min(len(data), 900)))


def damaged() -> Iterator[bytes]:
    """Files cut off, with changed bytes, and with numbers as large as they can be."""
    for seed, data in enumerate(FILES.values()):
        rng = random.Random(seed)
        yield data[:rng.randrange(len(data))]
        for _ in range(40):
            changed = bytearray(data)
            for _ in range(rng.choice((1, 1, 4))):
                changed[rng.randrange(4, len(changed))] = rng.choice((0, 1, 254, 255,
                                                                      rng.randrange(256)))
            yield bytes(changed)
        at = rng.choice(numbers(data))
        yield data[:at] + b"\0" + b"\xff" * 8 + data[at + 9:]


def test_damaged_files_are_refused() -> None:
    """Nothing but StrataError, and soon: a file's numbers are compared with its size."""
    started, refused = time.process_time(), 0
    for data in damaged():
        try:
            import_bytecode(data, "file", "file.mlirbc", ImportOptions())
        except StrataError as error:
            refused += 1
            assert "file.mlirbc" in str(error) and "where" in str(error), error
    assert refused > 100
    assert time.process_time() - started < 60


@pytest.mark.parametrize(("data", "text"), [
    (b"", "does not begin as MLIR"), (b"ML\xefR", "ends too early"),
    (b"ML\xefR\x01", "has no end"), (b"ML\xefR\x4bx\0", "version 37"),
    (b"ML\xefR\x0dx\0", "no strings"), (b"ML\xefR\x0dx\0\x01\x09", "4 bytes are announced"),
    (b"ML\xefR\x0dx\0\x05\x03\x01\x05\x03\x01", "twice")])
def test_what_is_no_program(data: bytes, text: str) -> None:
    with pytest.raises(StrataError, match=text) as error:
        functions(data, "f")
    assert "byte" in str(error.value)


def test_operations_of_one_version_are_refused() -> None:
    """What a user does then is said."""
    data = FILES["branches"].replace(b"vhlo\0", b"func\0")
    with pytest.raises(StrataError, match="portable artifact"):
        functions(data, "f")
