"""What is measured about a model of the zoo: a function per column of the table.

    python benchmarks/zoo/columns.py COLUMN MODEL.onnx < entry.json

runs one of them in this process and prints a cell as JSON: `ok`, and `text` for the table. `run.py`
starts a process per cell, so that nothing is warm and memory is given back.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from doubles import in_doubles
from inputs import Array, make_inputs
from memory import forget_peak, onnxruntime_peak, peak
from peer import THREADS, onnxruntime_call

Entry = Mapping[str, Any]
ARCH = "sm_90"
WEAK = {"weak_check", "constant_weights"}
"""Flags of models whose outputs hardly depend on what is computed."""
REPLAYS = 50
ROUND_SECONDS = 8.0
"""About how long both engines of the speed column run in all."""


@dataclass(frozen=True)
class Cell:
    """One field of the table. Not `ok`: `text` says what is wrong."""

    ok: bool
    text: str


# ---------------------------------------------------------------------- numbers
def cpu(model: Path, entry: Entry) -> Cell:
    """All cases on one compiled model."""
    return _agreement(model, entry, target="cpu", threads=THREADS, cache="off")


def checked(model: Path, entry: Entry) -> Cell:
    """As `cpu`, where every access looks whether it stays inside its buffer (`--check`)."""
    return _agreement(model, entry, target="cpu", threads=THREADS, cache="off", check=True)


def strategies(model: Path, entry: Entry) -> Cell:
    """As `cpu`, compiled per operator and by blocks."""
    cells = {strategy: _agreement(model, entry, target="cpu", threads=THREADS, cache="off",
                                  strategy=strategy) for strategy in ("per-op", "block")}
    return Cell(all(cell.ok for cell in cells.values()),
                "; ".join(f"{strategy}: {cell.text}" for strategy, cell in cells.items()))


def reference(model: Path, entry: Entry) -> Cell:
    """All cases by the meaning of the graph's operations."""
    return _agreement(model, entry, target="reference")


def interpret(model: Path, entry: Entry) -> Cell:
    """The CUDA kernels in Triton's interpreter, on the first case."""
    first = {**entry, "cases": entry["cases"][:1]}
    return _agreement(model, first, target="cuda", interpret=True, cache="off", features=ARCH)


def gpu(model: Path, entry: Entry) -> Cell:
    """All cases on an NVIDIA GPU, and how long a replay of the last one's CUDA graph takes.

    A model that decides while it runs has no graph: what the host does of it is told instead.
    """
    import compiler

    started = time.perf_counter()
    exe = compiler.compile(model, target="cuda", cache="off")
    seconds = time.perf_counter() - started
    cell = _compare(exe, model, entry)
    loaded: Any = exe.loaded.general
    timing = "; ".join(loaded.notes)
    if not timing:
        loaded.replay(REPLAYS)
        timing = f"{loaded.replay(REPLAYS):.3f} ms"
    text = f"{cell.text}, {timing}, compiled in {seconds:.1f} s"
    return Cell(True, text) if cell.ok else cell


def _agreement(model: Path, entry: Entry, **options: Any) -> Cell:
    import compiler

    return _compare(compiler.compile(model, **options), model, entry)


def _compare(exe: Any, model: Path, entry: Entry) -> Cell:
    """The outputs of every case beside onnxruntime's.

    Where they are too far apart, the model in f64 decides which of the two is off.
    """
    worst, judged, peer = 0.0, 0, onnxruntime_call(model)
    for number, case in enumerate(entry["cases"]):
        feeds = make_inputs(case)
        got, want = exe(**feeds), peer(feeds)
        error, fault = _deviations(exe.output_names, got, want, entry)
        if fault:
            exact = [a.astype(b.dtype) for a, b in zip(in_doubles(model, feeds), want, strict=True)]
            error, ours = _deviations(exe.output_names, got, exact, entry)
            _, theirs = _deviations(exe.output_names, want, exact, entry)
            if ours or not theirs:
                return Cell(False, f"case {number}, {fault}")
            judged += 1
        worst = max(worst, error)
    count = len(entry["cases"])
    weak = " (weak)" if WEAK & entry["flags"].keys() else ""
    f64 = f" ({judged} against f64: onnxruntime is off)" if judged else ""
    return Cell(True, f"{count} of {count}, {worst:.0e}{weak}{f64}")


def _deviations(
    names: Sequence[str], got: Sequence[Array], want: Sequence[Array], entry: Entry
) -> tuple[float, str]:
    """The largest deviation of all outputs; and the first that is too large, else ""."""
    worst = 0.0
    for name, a, b in zip(names, got, want, strict=True):
        error, fault = deviation(a, b, entry)
        if fault:
            return error, f"output '{name}': {fault}"
        worst = max(worst, error)
    return worst, ""


def deviation(got: Array, want: Array, entry: Entry) -> tuple[float, str]:
    """The largest deviation over the largest magnitude; and why it is too large, else "".

    The tolerance is the model's own: `rtol` of each value and `atol` of the largest magnitude; or,
    where single elements say nothing, `l2` of the whole. Integers must be equal.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        return np.inf, f"{got.dtype}{list(got.shape)} is not {want.dtype}{list(want.shape)}"
    if want.dtype.kind != "f":
        return 0.0, "" if np.array_equal(got, want) else "values differ"
    a, b = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    if entry["flags"].get("unstable_check"):
        a, b = np.sort(a), np.sort(b)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf, "there are values that are not finite"
    limits, top = entry["tolerance"], np.abs(b).max(initial=0.0)
    error = np.abs(a - b)
    beyond = int((error > limits["rtol"] * np.abs(b) + limits["atol"] * top).sum())
    share = float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0))
    fault = f"{beyond} of {b.size} values differ, by up to {error.max(initial=0.0):.1e}"
    good = not beyond or share <= limits.get("l2", 0.0)
    return float(error.max(initial=0.0) / (top or 1.0)), "" if good else fault


# ---------------------------------------------------------------------- time
def speed(model: Path, entry: Entry) -> Cell:
    """One call of the first case beside onnxruntime, one thread each, in turns."""
    import compiler

    exe, peer = compiler.compile(model, target="cpu", threads=THREADS), onnxruntime_call(model)
    feeds = make_inputs(entry["cases"][0])
    inputs = [feeds[name] for name in exe.input_names]
    ours, theirs = _medians([lambda: exe.run(inputs), lambda: peer(feeds)])
    return Cell(True, f"{1e3 * ours:.3g} / {1e3 * theirs:.3g} ms = {ours / theirs:.2f}")


def memory(model: Path, entry: Entry) -> Cell:
    """Peaks of resident memory: to compile, then to run all cases; and onnxruntime's for both."""
    import compiler

    exe = compiler.compile(model, target="cpu", threads=THREADS, cache="off")
    compiling = peak()
    forget_peak()
    for case in entry["cases"]:
        exe(**make_inputs(case))
    megabytes = [round(b / 1e6) for b in (compiling, peak(), onnxruntime_peak(model, entry))]
    return Cell(True, "{} MB, {} / {} MB".format(*megabytes))


def _medians(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Median CPU seconds of each call; they take turns, after a round that does not count."""
    started = time.perf_counter()
    for call in calls:
        call()
    rounds = int(np.clip(ROUND_SECONDS / (time.perf_counter() - started), 5, 500))
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, taken, strict=True):
            started = time.process_time()
            call()
            times.append(time.process_time() - started)
    return [statistics.median(times) for times in taken]


def compile_cold(model: Path, entry: Entry) -> Cell:
    """From the file to a callable, without a cache, in a fresh process; the import counts."""
    started, spent = time.perf_counter(), _spent()
    import compiler

    compiler.compile(model, target="cpu", cache="off")
    return Cell(True, f"{time.perf_counter() - started:.1f} s, {_spent() - spent:.1f} s of CPU")


def _spent() -> float:
    """CPU seconds of this process and of those that it started."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def to_graph(model: Path, entry: Entry) -> Cell:
    """`lower --to graph` in a fresh process."""
    started = time.perf_counter()
    status, _, errors = _command("lower", model, "--target", "cpu", "--to", "graph")
    seconds = time.perf_counter() - started
    return Cell(True, f"{seconds:.1f} s") if status == 0 else Cell(False, errors)


# ---------------------------------------------------------------------- every level
def verify(model: Path, entry: Entry) -> Cell:
    """`verify` after every pass, at every level, on the first case."""
    return _verified(model, entry)


def ring(model: Path, entry: Entry) -> Cell:
    """The same bits at every level and in the CPU's code, in a ring; on the first case."""
    return _verified(model, entry, "--ring")


def _verified(model: Path, entry: Entry, *how: str) -> Cell:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "inputs.npz"
        np.savez(file, **make_inputs(entry["cases"][0]))  # pyright: ignore[reportArgumentType]
        status, out, errors = _command("verify", model, "--target", "cpu", "--threads", THREADS,
                                       "--inputs", file, "--cache", "off", *how)
    seconds = time.perf_counter() - started
    if status:
        return Cell(False, errors or out)
    return Cell(True, f"{out.splitlines()[-1].split()[0]} agree, {seconds:.0f} s")


def kernels(model: Path, entry: Entry) -> Cell:
    """How many of the CPU's kernels keep every bit in the ring, and which passes the others went
    through that round."""
    from compiler.instrument.kept_bits import KeptBits
    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler

    kept = KeptBits()
    Compiler(str(model), CompileOptions("cpu", tuned="off", features="avx2"), (kept,)).lower()
    passes = sorted({p for found in kept.rounded.values() for p in found})
    count, total = len(kept.names) - len(kept.rounded), len(kept.names)
    return Cell(True, f"{count} of {total}" + (f"; {', '.join(passes)}" if passes else ""))


def provenance(model: Path, entry: Entry) -> Cell:
    """The nodes without a kernel or a reason, and the least shares of operations of a level and of
    lines of a kernel's code that name a node, for both targets."""
    told = [_origins(model, "cpu", "avx2", "llvm"), _origins(model, "cuda", ARCH, "triton")]
    lost = sum(t.lost for t in told)
    operations, lines = min(t.operations for t in told), min(min(t.lines) for t in told)
    text = f"{lost} lost, {operations:.1%} of operations, {lines:.1%} of lines"
    return Cell(not lost and operations >= 0.99 and lines >= 0.95, text)


def machine_code(model: Path, entry: Entry) -> Cell:
    """The shares of lines that name a node, in assembly of the CPU, PTX and SASS."""
    asm, ptx, sass = (*_origins(model, "cpu", "avx2", "asm").lines,
                      *_origins(model, "cuda", ARCH, "ptx", "sass").lines)
    return Cell(min(asm, ptx, sass) >= 0.95, f"{asm:.1%}, {ptx:.1%}, {sass:.1%}")


@dataclass(frozen=True)
class Told:
    """What a compilation knows of origins: nodes without any, the least share of operations of a
    level that have one, and the share of lines at each level of code."""

    lost: int
    operations: float
    lines: list[float]


def _origins(model: Path, target: str, features: str, *levels: str) -> Told:
    from compiler.instrument.provenance import Origins
    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler
    from compiler.reporting.listings import code_listing
    from targets.origins import is_code

    origins, options = Origins(), CompileOptions(target, tuned="off", features=features)
    compiler = Compiler(str(model), options, (origins,))
    state = compiler.lower()
    lost = [n for n in origins.nodes if not origins.kernels_of(n) and not origins.why(n)]
    index = {n.name: k for k, n in enumerate(origins.nodes)}
    names = list(dict.fromkeys(k for kernels in origins.kernels.values() for k in kernels))
    shares = [located / total for located, total in origins.levels.values() if total]
    lines = [[bool(nodes) for part in code_listing(compiler.emit(state, level), names, index)
              if part.symbol for line, nodes in zip(part.lines, part.nodes, strict=True)
              if is_code(line)] for level in levels]
    return Told(len(lost), min(shares, default=1.0), [sum(x) / (len(x) or 1) for x in lines])


def cubins(model: Path, entry: Entry) -> Cell:
    """Every kernel compiled for a GPU, on a machine that needs none."""
    started = time.perf_counter()
    status, out, errors = _command("lower", model, "--target", "cuda", "--features", ARCH,
                                   "--to", "ptx", "--cache", "off")
    if status:
        return Cell(False, errors)
    return Cell(True, f"{out.count('.visible .entry')}, {time.perf_counter() - started:.0f} s")


def _command(*words: object) -> tuple[int, str, str]:
    """Exit status, output and errors of a command of the compiler, run in this process."""
    from compiler.__main__ import main

    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        status = main([str(word) for word in words])
    return status, out.getvalue(), errors.getvalue()


COLUMNS: dict[str, Callable[[Path, Entry], Cell]] = {
    "cpu": cpu, "checked": checked, "strategies": strategies, "reference": reference,
    "verify": verify, "ring": ring, "kernels": kernels, "provenance": provenance,
    "machine code": machine_code,
    "cubins": cubins, "interpret": interpret, "gpu": gpu, "speed": speed, "memory": memory,
    "compile": compile_cold, "graph": to_graph,
}


def main() -> int:
    column, model = sys.argv[1:]
    os.environ.pop("STRATA_DEBUG", None)
    print(json.dumps(asdict(COLUMNS[column](Path(model), json.load(sys.stdin)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
