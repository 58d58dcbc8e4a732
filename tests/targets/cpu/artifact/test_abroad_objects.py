"""Code for other machines: what its objects are, and what is refused. Nothing is run."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dialects.graph as g
from compiler.io.signature import signature_of
from targets.base import TargetOptions, find_target
from targets.cpu.architectures import ARCHITECTURES, platform_of
from targets.cpu.artifact import cross
from targets.cpu.machine import machine_of
from targets.interface import TargetError
from targets.shipping import Shipment
from tests.lowering import lower
from tests.op_samples.sample import S, build_module

X, W = (np.random.default_rng(3).standard_normal(s).astype(np.float32) for s in ((5, 7), (7, 9)))


def elf(machine: int) -> Callable[[bytes], bool]:
    return lambda head: head[:6] == b"\x7fELF\x02\x01" and struct.unpack_from(
        "<H", head, 18)[0] == machine


def first(number: int, size: str) -> Callable[[bytes], bool]:
    return lambda head: struct.unpack_from(size, head)[0] == number


MACHO, COFF = 0xFEEDFACF, 0x8664
PLATFORMS = {
    "aarch64-linux-gnu": elf(183), "aarch64-unknown-linux-musl": elf(183),
    "riscv64-linux": elf(243), "x86_64-linux-gnu": elf(62), "amd64-pc-linux-gnu": elf(62),
    "wasm32": first(0x6D736100, "<I"), "wasm32-unknown-unknown": first(0x6D736100, "<I"),
    "arm64-apple-macos": first(MACHO, "<I"), "x86_64-apple-darwin": first(MACHO, "<I"),
    "x86_64-pc-windows-msvc": first(COFF, "<H"), "aarch64-windows": first(0xAA64, "<H"),
}
ALL_SETS = [(a.name, f) for a in {a.name: a for a in ARCHITECTURES.values()}.values()
            for f in a.sets]


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross, "zig_command", list)
    monkeypatch.setenv("PATH", "")


def written(options: TargetOptions, path: Path, form: str = "") -> Path:
    """A small model as a library."""
    module, _, context = build_module(S(g.MatmulOp, X, W), symbolic=True)
    parts = find_target("cpu").bind(options)
    list(lower(module, parts.context(context.weights)))
    parts.building.ship(module, context.weights).write(Shipment(
        "small", str(path), form, "0", facts={"signature": signature_of(module).facts()}))
    return path


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("triple", PLATFORMS)
def test_a_folder_needs_no_compiler(triple: str, tmp_path: Path) -> None:
    folder = written(TargetOptions(triple=triple), tmp_path / "small")
    code = (folder / "small_kernels.o").read_bytes()
    assert PLATFORMS[triple](code)
    assert b"small_entry" in code and b"strata_entry" not in code
    names = {file.name for file in folder.iterdir()}
    assert {"small.h", "small.c", "main.c", "Makefile", "small_constants.bin"} <= names
    assert "small.a" not in names
    again = written(TargetOptions(triple=triple), tmp_path / "again")
    assert (again / "small_kernels.o").read_bytes() == code


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize(("architecture", "features"), ALL_SETS, ids=str)
def test_every_feature_set_is_compiled(
    architecture: str, features: str, tmp_path: Path
) -> None:
    options = TargetOptions(triple=architecture, features=features)
    source = (written(options, tmp_path / "small") / "small.c").read_text()
    asks = {"aarch64": "AT_HWCAP", "riscv64": "AT_HWCAP", "wasm32": "getauxval", "x86_64": "0x7"}
    plain = features == "baseline" or architecture == "wasm32"
    assert (asks[architecture] in source) != plain
    assert machine_of(features, architecture).architecture == architecture


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("features", ["i8mm", "sve256"])
def test_scalable_vectors_are_used_where_they_are_wanted(features: str, tmp_path: Path) -> None:
    """By `ptrue pN.s, vl8`, which selects eight floats of a vector that may be longer."""
    options = TargetOptions(triple="aarch64", features=features)
    code = (written(options, tmp_path / "small") / "small_kernels.o").read_bytes()
    words = np.frombuffer(code[: len(code) // 4 * 4], np.uint32)
    assert bool((words & 0xFFFFFFF0 == 0x2598E100).any()) == (features == "sve256")


@pytest.mark.usefixtures("without_compiler")
def test_a_library_needs_a_compiler(tmp_path: Path) -> None:
    options = TargetOptions(triple="aarch64-linux-gnu")
    with pytest.raises(TargetError, match="no C compiler for aarch64-linux here; install"):
        written(options, tmp_path / "small.so", ".so")
    with pytest.raises(TargetError, match=r"is named \.dylib; write one that ends in \.so or \.a"):
        written(options, tmp_path / "small.dylib", ".dylib")
    with pytest.raises(TargetError, match=r"named \.wasm; those of others are made with --triple"):
        written(replace(options, triple=None), tmp_path / "small.wasm", ".wasm")


@pytest.mark.parametrize(("triple", "features", "message"), [
    ("sparc64-linux", None, "'sparc64' is none of x86_64, aarch64, riscv64, wasm32"),
    ("aarch64-plan9", None, "such as aarch64-linux-gnu"),
    ("wasm32-linux-gnu", None, "such as wasm32-wasi"),
    ("aarch64-linux-gnu", "avx2", "no feature set 'avx2'; there are: baseline, dotprod, i8mm"),
    ("riscv64", "neon", "no feature set 'neon'; there are: baseline, v"),
])
def test_what_is_no_machine_is_refused(triple: str, features: str | None, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        find_target("cpu").bind(TargetOptions(triple=triple, features=features))


def test_code_for_another_machine_is_not_run() -> None:
    with pytest.raises(TargetError, match="code for riscv64 can be shown and written here"):
        find_target("cpu").bind(TargetOptions(triple="riscv64")).running.check_machine()


@pytest.mark.parametrize(("triple", "name"), [
    ("arm64-apple-darwin23.1", "aarch64-macos"), ("x86_64-w64-mingw32", "x86_64-windows"),
    ("aarch64", "aarch64-linux"), ("wasm", "wasm32-wasi"),
    ("amd64-linux-musl", "x86_64-linux-musl")])
def test_triples_have_many_spellings(triple: str, name: str) -> None:
    assert platform_of(triple).name == name
