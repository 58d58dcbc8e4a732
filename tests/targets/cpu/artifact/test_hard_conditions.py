"""Libraries under hard conditions: no memory at any point, and others of the same name beside."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.programs import library
from tests import processes
from tests.programs.test_libraries import AT, CHOSEN, QUANTIZED, X, model_of
from tests.programs.test_saved_programs import LOOPED, SIZED
from tests.targets.cpu.artifact.abroad import pack, write_headers
from tests.targets.cpu.artifact.shipped import (
    build,
    has_sanitizers,
    needs_sanitizers,
    needs_tools,
    output_of,
    ship,
)

pytestmark = needs_tools
HERE = Path(__file__).parent
GROWING = """
<ir_version: 8, opset_import: ["" : 17]>
growing (float[n] x, int64 trips) => (float[m, n] y, float[k] z) <bool go = {1}> {
    y = Loop(trips, go) <body = turn (int64 i, bool c) => (bool d, float[n] u) {
        d = Identity(c)  f = Cast<to = 1>(i)  u = Mul(x, f)
    }>
    a = Abs(x)  w = Greater(a, x)  z = Compress<axis = 0>(x, w)
}
"""
ROWS = """
<ir_version: 8, opset_import: ["" : 17]>
rows (float[n, m] x) => (float[n, m] y) { a = Softmax(x)  b = Exp(a)  y = Softmax(b) }
"""
WIDE = """
<ir_version: 8, opset_import: ["" : 17]>
wide (float[8192, 1024] x) => (float[8192, 1024] y) <float one = {1}> { y = Add(x, one) }
"""
MODELS: dict[str, tuple[str, list[np.ndarray]]] = {
    "sizes of a run": (SIZED, [np.float32([1, 0, 2, 0, 3, 4]), np.array([2])]),
    "a loop": (LOOPED, [X[0, :2], np.array(5)]),
    "a loop that stacks": (GROWING, [X[0], np.array(4)]),
    "quantized": (QUANTIZED, [X]),
    "rows of any length": (ROWS, [X]),
    "choices": (CHOSEN, [X[:, :4], X[:, 4:], AT]),
}


def starving(text: str, inputs: Sequence[np.ndarray], folder: Path, flags: Sequence[str],
             arguments: Sequence[str], **options: Any) -> str:
    """What the program prints about a model."""
    model = ship(model_of(text), folder / "model", "model", **options)
    write_headers(folder, "model")
    pieces = [model / f"model{end}" for end in (".c", "_kernels.o", "_constants.S")]
    build([HERE / "starve.c", *(pieces if flags else [model / "model.a"])], folder / "program",
          '-DHEADER="own.h"', "-DCALL(f)=model_##f", f"-I{folder}", f"-I{model}", *flags,
          strict=False)
    done = processes.run([folder / "program", *arguments], input=pack(inputs),
                         capture_output=True, limit=120)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


@pytest.mark.parametrize(("threads", "copies"), [("1", "0"), ("3", "1")])
@pytest.mark.parametrize("name", MODELS)
def test_every_allocation_may_fail(
    name: str, threads: str, copies: str, tmp_path: Path
) -> None:
    found = starving(*MODELS[name], tmp_path, (), (threads, copies))
    assert found == "every allocation failed\n"


@pytest.mark.parametrize("name", MODELS)
def test_code_asks_only_the_allocator(name: str, tmp_path: Path) -> None:
    model = ship(model_of(MODELS[name][0]), tmp_path / "model", "model")
    done = processes.run(["nm", "-u", model / "model_kernels.o"], text=True, capture_output=True,
                         limit=60)
    assert done.returncode == 0, done.stderr
    wanted = {line.split()[-1] for line in done.stdout.splitlines()}
    assert not wanted & {"aligned_alloc", "posix_memalign", "malloc", "calloc", "free"}


@needs_sanitizers
@pytest.mark.parametrize("name", ["sizes of a run", "a loop that stacks", "rows of any length"])
def test_nothing_is_read_or_leaked_then(name: str, tmp_path: Path) -> None:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover")
    found = starving(*MODELS[name], tmp_path, flags, ("2", "1"))
    assert found == "every allocation failed\n"


@pytest.mark.skipif(not (shutil.which("make") and has_sanitizers("thread")),
                    reason="the C compiler has no sanitizer of threads, or there is no make")
def test_threads_do_not_race(tmp_path: Path) -> None:
    """What runs around the code is compiled again, so that the sanitizer watches it."""
    text = """
<ir_version: 8, opset_import: ["" : 17]>
rows (float[n, 64] x) => (float[n, 64] y) {
    t = Transpose<perm = [1, 0]>(x)  a = MatMul(x, t)  b = Softmax(a)  y = MatMul(b, x)
}
"""
    folder = ship(model_of(text), tmp_path / "rows", "rows", also=[{"n": 64}])
    for file in (*folder.glob("*.a"), *folder.glob("*_code.o"), *folder.glob("*_variant.o")):
        file.unlink()
    flags = "-O1 -g -fsanitize=thread"
    done = processes.run(["make", "-C", folder, f"CFLAGS={flags}", "rows.a"], text=True,
                         capture_output=True, limit=120)
    assert done.returncode == 0, done.stderr
    build([HERE / "races.c", folder / "rows.a"], tmp_path / "races", *flags.split(), f"-I{folder}")
    assert output_of(tmp_path / "races") == "0 were wrong\n"


def test_large_outputs_may_start_anywhere(tmp_path: Path) -> None:
    """They are stored past the caches, which needs whole lines."""
    folder = ship(model_of(WIDE), tmp_path / "wide", "wide")
    build([HERE / "unaligned.c", folder / "wide.a"], tmp_path / "unaligned", f"-I{folder}")
    assert output_of(tmp_path / "unaligned") == "0 were wrong\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pages that are asked for so")
@pytest.mark.parametrize("sanitized", [False, pytest.param(True, marks=needs_sanitizers)])
def test_large_pages_are_taken_while_they_cost_little(sanitized: bool, tmp_path: Path) -> None:
    """Two readings of the clock are those of small pages, then come two for each large page."""
    folder = ship(model_of(WIDE), tmp_path / "wide", "wide")
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover"] if sanitized else []
    pieces = [folder / f"wide{end}" for end in (
        (".c", "_kernels.o", "_constants.S") if sanitized else (".a",))]
    build([HERE / "pages.c", *pieces], tmp_path / "pages", f"-I{folder}", *flags,
          "-Wl,--wrap=clock_gettime,--wrap=madvise", strict=not sanitized)
    pages = int(output_of(tmp_path / "pages").removeprefix("large"))
    assert pages in (14, 15)
    assert output_of(tmp_path / "pages", "4") == f"large {pages}\nsmall {pages - 1}\n"
    assert output_of(tmp_path / "pages", "8") == f"large {pages}\nsmall {pages - 3}\n"
    assert output_of(tmp_path / "pages", f"{2 * pages + 2}") == f"large {pages}\n"


def test_programs_for_some_sizes_do_without_memory(tmp_path: Path) -> None:
    text, inputs = MODELS["choices"]
    found = starving(text, inputs, tmp_path, (), ("2", "1"), also=[{"n": 3}, {"n": 1}])
    assert found == "every allocation failed\n"


def test_two_versions_of_a_model_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if a program shows the functions of both to everyone. Their states differ in size."""
    head = '<ir_version: 8, opset_import: ["" : 17]> m (float[n] x) => (float[n] y) '
    texts = {"1.2.3": "<float[1] k = {2}> { a = Softmax(x)  b = Div(a, a)  y = Add(x, b) }",
             "9.9.9": "<float[1] k = {3}> { y = Mul(x, k) }"}
    for version, text in texts.items():
        monkeypatch.setattr(library, "__version__", version)
        ship(model_of(head + text), tmp_path / f"{version}.so", "model",
             also=[{"n": 5}, {"n": 7}] if version == "1.2.3" else [])
    build([HERE / "versions.c"], tmp_path / "main", "-D_DEFAULT_SOURCE", "-ldl", strict=False)
    for order in (("1.2.3", "9.9.9"), ("9.9.9", "1.2.3")):
        shown = {"1.2.3": "1.2.3: 2 3 4", "9.9.9": "9.9.9: 3 6 9"}
        assert output_of(tmp_path / "main", *(str(tmp_path / f"{v}.so") for v in order)) == (
            "".join(f"{shown[v]}\n" for v in order))


@pytest.mark.parametrize("beside", [False, True])
def test_damaged_constants_are_found_when_asked(beside: bool, tmp_path: Path) -> None:
    """Each byte counts: the first, the last, and those after the last eight."""
    head = '<ir_version: 8, opset_import: ["" : 17]> m (float[19] x) => (float[19] y) '
    numbers = np.arange(1, 20, dtype=np.float32) / 7
    values = ", ".join(map(repr, numbers.tolist()))
    text = f"{head} <float[19] w = {{{values}}}> {{ y = Mul(x, w) }}"
    weights = tmp_path / "model.weights" if beside else None
    file = ship(model_of(text), tmp_path / "model.so", "model", weights=weights)
    spec = importlib.util.spec_from_file_location("model_numpy", tmp_path / "model_numpy.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    damaged = weights or file
    whole = damaged.read_bytes()
    start = whole.index(numbers.tobytes())
    for number, place in enumerate((None, start, start + 75, start + 30)):
        content = bytearray(whole)
        if place is not None:
            content[place] ^= 0x40
        damaged.write_bytes(content)
        library = tmp_path / f"model{number}.so"  # a system loads a path once
        library.write_bytes(file.read_bytes())
        x = np.ones(19, np.float32)
        [y] = module.Model(library, threads=1)(x)
        assert (y == numbers).all() == (place is None)
        if place is None:
            assert module.Model(library, threads=1, verify=True)(x)[0].tolist() == y.tolist()
            continue
        with pytest.raises(ValueError, match="damaged"):
            module.Model(library, threads=1, verify=True)
