"""PyTorch's own samples of its operators, through `torch.compile(backend="strata")`.

    python benchmarks/torch/opinfo.py [--count 1] [--dtypes float32,int64,bool,bfloat16]
        [--only NAME,...] [--kept FOLDER] [--seconds 30] [--shard 0/4] [--page]

OpInfo is the table with which PyTorch tests its operators (`torch.testing._internal`). Each sample
is compiled with `fullgraph=True` on the CPU and compared with eager mode:

    native  every node is compiled, and the results are equal.
    split   some nodes run eagerly; the reason is what the warning says.
    wrong   the results differ, in numbers, types or shapes.
    failed  the backend raises, crashes, or needs more than `--seconds`.
    not captured  PyTorch captures no graph of it for any backend: `backend="eager"` raises, too.

The operators are divided among processes, each of which runs many; one that crashes or hangs costs
only its operator. Results are kept in a folder, and a second run continues there. `--shard 1/4`
runs a second quarter, with files of its own. `--page` only writes OPINFO.md from all that is kept.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import re
import sys
import tempfile
import unittest
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from apart import gathered, keep, run_apart

HERE = Path(__file__).parent
DTYPES = "float32,int64,bool,bfloat16"
MOST_DRAWN = 60
"""Samples of an operator among which `--count` are chosen."""
NOT_COMPARED = ("empty", "empty_like", "new_empty", "new_empty_strided", "empty_permuted",
                "empty_strided")
"""Operators whose results hold anything."""
TIES = ("topk", "sort", "kthvalue", "median", "nanmedian", "mode", "msort")
"""Operators whose second result may be another place of an equal element."""
FAILED, NOT_CAPTURED = "failed", "not captured"
VERDICTS = ("native", "split", "wrong", FAILED)
WIDER = {"bfloat16": "float32", "float16": "float32", "float32": "float64"}
CELL = str.maketrans({"|": "\\|"})
LIMITS = {"float32": (1e-4, 2e-5), "bfloat16": (3e-2, 2e-2)}


# ---------------------------------------------------------------------- one process: some operators
def operators(dtype: str) -> list[Any]:
    """The operators of OpInfo that have samples of a dtype on the CPU, by name."""
    import torch

    _stand_in("expecttest")
    from torch.testing._internal import common_methods_invocations as table

    table.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # we set it
    kind = getattr(torch, dtype)
    return sorted((op for op in table.op_db if op.supports_dtype(kind, "cpu")), key=full_name)


def _stand_in(library: str) -> None:
    """Let the table's module import a library of test cases, which the samples do not need."""
    if importlib.util.find_spec(library) is None:
        module: Any = ModuleType(library)
        module.TestCase, module.__spec__ = unittest.TestCase, ModuleSpec(library, None)
        sys.modules.setdefault(library, module)


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def work(dtype: str, names: Sequence[str], count: int, kept: Path) -> None:
    """Run the samples of operators, and add a line for each operator to a file."""
    import torch

    torch.set_num_threads(1)
    torch._logging.set_logs(all=logging.ERROR)
    known = {full_name(op): op for op in operators(dtype)}
    keep(kept, names, lambda name: list(_verdicts(known[name], dtype, count)))


def _verdicts(op: Any, dtype: str, count: int) -> Iterator[tuple[str, str]]:
    import torch

    try:
        drawn = list(islice(op.sample_inputs("cpu", getattr(torch, dtype)), MOST_DRAWN))
    except Exception as error:
        yield "failed", f"no samples: {first_line(error)}"
        return
    for sample in drawn[::max(1, len(drawn) // count)][:count]:
        found = _verdict(op, dtype, sample)
        if found is not None:
            yield found


def _verdict(op: Any, dtype: str, sample: Any) -> tuple[str, str] | None:
    """What becomes of one sample, and why; None if eager mode raises, too."""
    import torch

    def call(value: Any, args: Any, kwargs: Any) -> Any:
        return op(value, *args, **kwargs)

    arguments = partial(_copied, (sample.input, sample.args, sample.kwargs))
    try:
        torch.manual_seed(0)
        want = call(*arguments())
    except Exception:
        return None
    torch._dynamo.reset()
    split = EagerParts()
    logging.getLogger("strata").addHandler(split)
    try:
        torch.manual_seed(0)
        with torch.no_grad():
            got = torch.compile(call, backend="strata", fullgraph=True)(*arguments())
    except Exception as error:
        return FAILED if _is_captured(call, arguments()) else NOT_CAPTURED, first_line(error)
    finally:
        logging.getLogger("strata").removeHandler(split)
    if op.name in TIES and isinstance(got, tuple):
        got, want = got[:1], want[:1]
    if op.name == "argsort" and not sample.kwargs.get("stable"):
        got, want = (_in_order(sample, places) for places in (got, want))
    wrong = "" if op.name in NOT_COMPARED else difference(got, want, dtype)
    if wrong and dtype in WIDER and _is_nearer(op, sample, got, want, WIDER[dtype]):
        wrong = ""
    if wrong:
        return "wrong", wrong
    return ("split", split.why[0]) if split.why else ("native", "")


def _is_captured(call: Any, arguments: Any) -> bool:
    """Whether PyTorch captures a call as one graph, which a backend then runs as it is."""
    import torch

    torch._dynamo.reset()
    try:
        with torch.no_grad():
            torch.compile(call, backend="eager", fullgraph=True)(*arguments)
    except Exception:
        return False
    return True


def _in_order(sample: Any, places: Any) -> Any:
    """The elements at places, since those of equal elements may be exchanged."""
    import torch

    dim = sample.kwargs.get("dim", next(iter(sample.args), -1))
    return torch.take_along_dim(sample.input, places, dim) if sample.input.dim() else places


def _is_nearer(op: Any, sample: Any, got: Any, want: Any, wider: str) -> bool:
    """Whether results are as near as eager mode's, which rounds in between, to those of a wider
    type."""
    import torch

    kind = getattr(torch, wider)

    def wide(value: Any) -> Any:
        return torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda t: t.to(kind) if t.is_floating_point() else t, value)

    def errors(found: Any) -> list[float]:
        return [_largest_error(a.to(kind), b) for a, b in zip(
            *(torch.utils._pytree.tree_leaves(v) for v in (found, exact)), strict=True)
            if b.is_floating_point() and b.numel()]

    try:
        exact = op(wide(sample.input), *wide(sample.args), **wide(sample.kwargs))
        return all(a <= 2 * b for a, b in zip(errors(got), errors(want), strict=True))
    except Exception:
        return False


def _largest_error(got: Any, exact: Any) -> float:
    """The largest difference: infinite where only one of both is NaN."""
    import torch

    same = (got == exact) | (got.isnan() & exact.isnan())
    found = torch.where(same, 0.0, (got - exact).abs())
    return float(found.nan_to_num(nan=torch.inf, posinf=torch.inf).max())


def _copied(value: Any) -> Any:
    """Arguments whose tensors are copies, so that operators may write to them."""
    import torch

    return torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda t: t.detach().clone(memory_format=torch.preserve_format), value)


class EagerParts(logging.Handler):
    """Collects the reasons for which nodes run eagerly."""

    def __init__(self) -> None:
        super().__init__()
        self.why: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            found = getattr(record, "strata_eager", ((), record.getMessage()))
            self.why.append(_without_places(str(found[1]).splitlines()[0])[:200])


def _without_places(why: str) -> str:
    """A reason without the lines of the user's code."""
    return re.sub(r" \(/.*?\)(?=;|$)", "", why)


def difference(got: Any, want: Any, dtype: str) -> str:
    """What differs between results; empty if nothing does."""
    import torch

    ours, theirs = (torch.utils._pytree.tree_leaves(v) for v in (got, want))
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b and not (a != a and b != b):
                return f"{a} instead of {b}"
        elif a.dtype != b.dtype or a.shape != b.shape:
            return f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        elif found := _in_numbers(a, b, dtype):
            return found
    return ""


def _in_numbers(a: Any, b: Any, dtype: str) -> str:
    import torch

    rounded = b.is_floating_point() or b.is_complex()
    relative, absolute = LIMITS.get(dtype, (1e-4, 2e-5)) if rounded else (0.0, 0.0)
    try:
        torch.testing.assert_close(a, b, rtol=relative, atol=absolute, equal_nan=True,
                                   check_stride=False, check_layout=False)
    except Exception as error:
        return " ".join(str(error).split())[:160]
    return ""


def first_line(error: BaseException) -> str:
    lines = [*filter(None, map(str.strip, str(error).splitlines())), ""]
    return f"{type(error).__name__}: {lines[0]}"[:200]


# ---------------------------------------------------------------------- all processes
def run(dtype: str, only: Sequence[str], count: int, seconds: float, kept: Path,
        shard: tuple[int, int] = (0, 1)) -> None:
    """Run what a dtype's file lacks."""
    names = [n for n in map(full_name, operators(dtype)) if not only or n in only]
    run_apart([sys.executable, __file__, "--worker", dtype, "--count", str(count)],
              names[shard[0]::shard[1]], seconds, kept)


# ---------------------------------------------------------------------- operators by their tags
def core_operators(dtype: str) -> set[str]:
    """The entries of OpInfo whose operator is tagged `core`."""
    import torch

    core = {op.name().partition("::")[2].partition(".")[0] for op in _overloads("aten")
            if torch.Tag.core in op.tags}
    return {full_name(op) for op in operators(dtype) if op.aten_name in core}


def missing_operators() -> tuple[int, list[str]]:
    """How many operators are tagged `core` or are PrimTorch's, and those of them that have neither
    an importer nor a decomposition. Variants that write into an argument are not counted."""
    import torch._prims

    from compiler.frontend.torch.complex import complex_importers
    from compiler.frontend.torch.core.decompose import NO_EFFECT, decompositions
    from compiler.frontend.torch.ops import importers
    from compiler.frontend.torch.walk import READS_NUMBER
    from compiler.torch.draws import OF_SHAPE

    known = {*importers(), *complex_importers(), *READS_NUMBER, *NO_EFFECT, *OF_SHAPE,
             *map(str, decompositions(list(importers())))}
    found = [op for space in ("aten", "prims") for op in _overloads(space)
             if not op._schema.is_mutable and (space == "prims" or torch.Tag.core in op.tags)
             and not op.name().startswith("aten::sym_")]
    return len(found), sorted(str(op) for op in found if str(op) not in known)


def _overloads(space: str) -> Iterator[Any]:
    import torch

    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        if namespace == space:
            packet, _, overload = rest.partition(".")
            yield getattr(getattr(getattr(torch.ops, space), packet), overload or "default")


# ---------------------------------------------------------------------- the page
def page(folder: Path, dtypes: Sequence[str], count: int) -> str:
    import torch

    tables = {d: gathered(folder, f"{d}*.jsonl") for d in dtypes}
    total, missing = missing_operators()
    lines = ["# PyTorch's operators", "", "```",
             f"python benchmarks/torch/opinfo.py --count {count}", "```", "",
             f"PyTorch {torch.__version__}, CPU. Samples are OpInfo's, at most {count} of an",
             "operator, spread over its samples; the table says of how many operators. Complex",
             "results are equal within the limits of their parts. The script tells the words.", "",
             "| dtype | operators | samples | native | split | wrong | failed | not captured |",
             "|---|---|---|---|---|---|---|---|"]
    lines += [_summary(d, t, {*map(full_name, operators(d))}) for d, t in tables.items()]
    lines += [_summary(f"{d}, tagged `core`", t, core_operators(d)) for d, t in tables.items()]
    lines += ["", f"Of {total} operators tagged `core` or of PrimTorch, {len(missing)} have "
              "neither an importer nor a decomposition" + (":" if missing else "."), ""]
    lines += [f"- `{name}`" for name in missing]
    lines += ["", "## Reasons", "", "| samples | reason |", "|---|---|"]
    reasons = Counter(why for table in tables.values() for found in table.values()
                      for state, why in found if state == "split")
    lines += [f"| {n} | {why.translate(CELL)} |" for why, n in reasons.most_common(120)]
    lines += ["", "## Wrong, failed and not captured", "", "| operator | dtype | | |",
              "|---|---|---|---|"]
    lines += [f"| {name} | {dtype} | {state} | {why.translate(CELL)} |"
              for dtype, table in tables.items()
              for name, found in table.items() for state, why in dict.fromkeys(found)
              if state in ("wrong", FAILED, NOT_CAPTURED)]
    return "\n".join(lines) + "\n"


def _summary(title: str, table: dict[str, list[tuple[str, str]]], names: set[str]) -> str:
    run = table.keys() & names
    found = cells_of((verdict for name in run for verdict, _ in table[name]),
                     (*VERDICTS, NOT_CAPTURED))
    return f"| {title} | {len(run)} of {len(names)} | {found} |"


def cells_of(verdicts: Iterable[str], shown: Sequence[str] = VERDICTS) -> str:
    """How many samples there are, and how many of each verdict."""
    counts = Counter(verdicts)
    cells = [f"{counts[v]} ({counts[v] / max(counts.total(), 1):.0%})"
             for v in shown]
    return f"{counts.total()} | {' | '.join(cells)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--dtypes", default=DTYPES)
    parser.add_argument("--only", default="")
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "strata-opinfo")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--shard", default="0/1", metavar="I/N")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    only = [name for name in given.only.split(",") if name]
    if given.worker:
        work(given.worker, only, given.count, given.kept)
        return
    given.kept.mkdir(parents=True, exist_ok=True)
    dtypes = given.dtypes.split(",")
    for dtype in [] if given.page else dtypes:
        number, of = map(int, given.shard.split("/"))
        own = f"{dtype}.jsonl" if of == 1 else f"{dtype}.{number}of{of}.jsonl"
        run(dtype, only, given.count, given.seconds, given.kept / own, (number, of))
    (HERE / "OPINFO.md").write_text(page(given.kept, dtypes, given.count))


if __name__ == "__main__":
    main()
