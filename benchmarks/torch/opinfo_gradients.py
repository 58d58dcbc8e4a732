"""Gradients of PyTorch's own samples of its operators, through `torch.compile(backend="strata")`.

    python benchmarks/torch/opinfo_gradients.py [--count 1] [--sample 100 --seed 0]
        [--only NAME,...] [--kept FOLDER] [--seconds 60] [--page]

Samples are OpInfo's (see `opinfo.py`), in f32 on the CPU, of the operators that support autograd.
Each is compiled with `fullgraph=True`, and its gradients for random cotangents are compared with
eager mode's:

    native  both graphs are compiled, and results and gradients are equal, or as near to those of
            f64 as eager mode's.
    split   some nodes of a graph run eagerly; the reason is what the warning says.
    wrong   results or gradients differ, in numbers, types or shapes.
    failed  PyTorch or the backend raises, crashes, or needs more than `--seconds`.

`--sample N` draws N operators by a seed. Results are kept in a folder, and a second run continues
there. `--page` only writes GRADIENTS.md from all that is kept.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from apart import Samples, keep, results_of, run_apart
from opinfo import (
    CELL,
    MOST_DRAWN,
    NOT_COMPARED,
    EagerParts,
    cells_of,
    difference,
    first_line,
    full_name,
    operators,
)

HERE = Path(__file__).parent
LEFT_OUT = (
    "_upsample_bilinear2d_aa", "cholesky", "linalg.ldl_factor", "multinomial", "nonzero_static",
    "normal", "normal.in_place", "normal.number_mean", "resize_", "resize_as_", "sparse.mm.reduce",
    "sparse.sampled_addmm", "to_sparse")
"""Operators that Inductor's own suite expects to fail, or skips, for f32 on the CPU
(`test/inductor/test_torchinductor_opinfo.py`)."""


# ---------------------------------------------------------------------- one process: some operators
def differentiable() -> dict[str, Any]:
    """The operators of OpInfo with gradients in f32 on the CPU, by name."""
    import torch

    return {full_name(op): op for op in operators("float32") if op.supports_autograd
            and torch.float32 in op.supported_backward_dtypes("cpu")}


def work(names: Sequence[str], count: int, kept: Path) -> None:
    """Run the samples of operators, and add a line for each operator to a file."""
    import torch

    torch.set_num_threads(1)
    torch._logging.set_logs(all=logging.ERROR)
    known = differentiable()
    keep(kept, names, lambda name: list(_verdicts(known[name], count)))


def _verdicts(op: Any, count: int) -> Iterator[tuple[str, str]]:
    import torch

    try:
        drawn = list(islice(op.sample_inputs("cpu", torch.float32, requires_grad=True), MOST_DRAWN))
    except Exception as error:
        yield "failed", f"no samples: {first_line(error)}"
        return
    for sample in drawn[::max(1, len(drawn) // count)][:count]:
        found = _verdict(op, sample)
        if found is not None:
            yield found


def _verdict(op: Any, sample: Any) -> tuple[str, str] | None:
    """What becomes of one sample, and why; None if eager mode has no gradients of it."""
    import torch

    def call(value: Any, args: Any, kwargs: Any) -> Any:
        return op(value, *args, **kwargs)

    given = (sample.input, sample.args, sample.kwargs)
    try:
        want = _gradients(call, given)
    except Exception:
        return None
    torch._dynamo.reset()
    split = EagerParts()
    logging.getLogger("strata").addHandler(split)
    try:
        got = _gradients(torch.compile(call, backend="strata", fullgraph=True), given)
    except Exception as error:
        return "failed", first_line(error)
    finally:
        logging.getLogger("strata").removeHandler(split)
    wrong = "" if op.name in NOT_COMPARED else _difference(got, want)
    if wrong and not _is_nearer(call, given, got, want):
        return "wrong", wrong
    return ("split", split.why[0]) if split.why else ("native", "")


def _difference(got: Any, want: Any) -> str:
    for what, ours, theirs in zip(("results", "gradients"), got, want, strict=True):
        if wrong := difference(ours, theirs, "float32"):
            return f"{what}: {wrong}"
    return ""


def _gradients(call: Any, given: Any, wide: bool = False) -> tuple[list[Any], list[Any]]:
    """The results, and the gradients of all arguments that require them."""
    import torch

    value, args, kwargs = torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda t: _leaf(t, wide), given)
    leaves = [t for t in torch.utils._pytree.tree_leaves((value, args, kwargs))
              if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.manual_seed(0)
    made = torch.utils._pytree.tree_leaves(call(value, args, kwargs))
    results = [t for t in made if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.manual_seed(1)
    cotangents = [torch.randn(t.shape, dtype=torch.complex64 if t.is_complex() else torch.float32)
                  .to(t.dtype) for t in results]
    found = torch.autograd.grad(results, leaves, cotangents, allow_unused=True)
    return [t.detach() if isinstance(t, torch.Tensor) else t for t in made], list(found)


def _leaf(tensor: Any, wide: bool) -> Any:
    """An argument of its own, so that operators may write to it; in f64 where that is wanted."""
    import torch

    made = tensor.detach().clone(memory_format=torch.preserve_format)
    if wide and made.dtype in (torch.float32, torch.complex64):
        made = made.to(torch.complex128 if made.is_complex() else torch.float64)
    return made.requires_grad_(tensor.requires_grad)


def _is_nearer(call: Any, given: Any, got: Any, want: Any) -> bool:
    """Whether results and gradients are as near to those of f64 as eager mode's."""
    import torch

    def errors(found: Any) -> list[float]:
        return [float((a.to(b.dtype) - b).abs().nan_to_num().max())
                for one, other in zip(found, exact, strict=True)
                for a, b in zip(one, other, strict=True)
                if isinstance(b, torch.Tensor) and b.is_floating_point() and b.numel()]

    try:
        exact = _gradients(call, given, wide=True)
        ours, theirs = errors(got), errors(want)
        kinds = [(a.shape, a.dtype) == (b.shape, b.dtype)
                 for one, other in zip(got, want, strict=True)
                 for a, b in zip(one, other, strict=True) if isinstance(b, torch.Tensor)]
        return all(kinds) and all(a <= 2 * b for a, b in zip(ours, theirs, strict=True))
    except Exception:
        return False


# ---------------------------------------------------------------------- the page
def page(table: dict[str, Samples], total: int, command: str) -> str:
    import torch

    counted = {n: found for n, found in table.items() if n not in LEFT_OUT}
    lines = ["# Gradients of PyTorch's operators", "", "```", command, "```", "",
             f"PyTorch {torch.__version__}, CPU, f32. Of {total} operators with gradients,",
             f"{len(table)} were run. What the words mean is in the script's text.", "",
             "| operators | of them | samples | native | split | wrong | failed |",
             "|---|---|---|---|---|---|---|", _summary("all that were run", table),
             _summary("those that Inductor's suite expects to pass", counted), "",
             "## Reasons", "", "| samples | reason |", "|---|---|"]
    reasons = Counter(why for found in table.values() for state, why in found if state == "split")
    lines += [f"| {n} | {why.translate(CELL)} |" for why, n in reasons.most_common()]
    lines += ["", "## Split, wrong and failed", "", "| operator | | |", "|---|---|---|"]
    lines += [f"| {name} | {state} | {why.translate(CELL)} |"
              for name, found in sorted(table.items())
              for state, why in dict.fromkeys(found) if state != "native"]
    return "\n".join(lines) + "\n"


def _summary(title: str, table: dict[str, Samples]) -> str:
    found = cells_of(verdict for samples in table.values() for verdict, _ in samples)
    return f"| {title} | {len(table)} | {found} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1, help="samples of each operator")
    parser.add_argument("--sample", type=int, help="operators to draw; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--kept", type=Path,
                        default=Path(tempfile.gettempdir()) / "strata-opinfo-gradients")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    only = [name for name in given.only.split(",") if name]
    if given.worker:
        work(only, given.count, given.kept)
        return
    given.kept.mkdir(parents=True, exist_ok=True)
    names, kept = sorted(differentiable()), given.kept / "float32.jsonl"
    chosen = [n for n in names if not only or n in only]
    command = "python benchmarks/torch/opinfo_gradients.py"
    if given.sample:
        chosen = random.Random(given.seed).sample(chosen, min(given.sample, len(chosen)))
        command += f" --sample {given.sample} --seed {given.seed}"
    if not given.page:
        run_apart([sys.executable, __file__, "--worker", "--count", str(given.count)], chosen,
                  given.seconds, kept)
    (HERE / "GRADIENTS.md").write_text(page(results_of(kept), len(names), command))


if __name__ == "__main__":
    main()
