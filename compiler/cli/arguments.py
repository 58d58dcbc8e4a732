"""The options that commands share: their spelling, help and conversion."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from compiler.options import DENORMALS, LIBRARIES, PRECISIONS, CompileOptions, Specialize
from compiler.pipeline.strategies import STRATEGIES, WHOLE_GRAPH
from compiler.ranks import own_rank


class Arguments(Protocol):
    """A parser, or a group of its arguments."""

    def add_argument(self, *names: str, **about: Any) -> argparse.Action: ...


TEXT_LEVELS = ("graph", "loop", "host", "block")
MODEL_HELP = ("an .onnx or .pt2 file, a .mlir text (also StableHLO, as text or bytecode), "
              "file.py:function, or - to read an ONNX model or a text from standard input")


def add_model(parser: argparse.ArgumentParser, weights: bool = True) -> None:
    """Add MODEL, its sizes, and, if `weights`, the location of its weights."""
    group = parser.add_argument_group("the model")
    complete(group.add_argument("model", metavar="MODEL", help=MODEL_HELP))
    group.add_argument("--shape", metavar="NAME=1x3x224x224", action="append", default=[],
                       type=named_shape, help="fix an input's shape; a size may also be a name")
    group.add_argument("--dim", metavar="NAME=N", action="append", default=[], type=named_size,
                       help="fix a named size of the model")
    if weights:
        complete(group.add_argument(
            "--weights", metavar="FILE", type=Path,
            help="the weights of a .mlir text: a weights.npz, or the model it was made from"))


def add_target(parser: argparse.ArgumentParser, checks: bool = True) -> None:
    """Add the target and its options. `checks`: add --check, too."""
    group = parser.add_argument_group("the target")
    group.add_argument("--target", metavar="T", default="cpu",
                       help="cpu (default), cuda, hip, opencl, reference, a plugin's, or a "
                            "--triple: wasm is --target cpu --triple wasm")
    group.add_argument("--features", metavar="NAME",
                       help="compile for these machine features instead of this machine's: "
                            "baseline, avx2, avx512, amx (default: $STRATA_CPU_FEATURES, or the "
                            "processor's); sm_90; gfx942")
    group.add_argument("--triple", metavar="ARCH-SYSTEM",
                       help="cpu: compile for another machine, such as aarch64-linux-gnu, "
                            "riscv64-linux-gnu, wasm32 or arm64-apple-macos; --features then names "
                            "a set of its architecture: baseline, dotprod, i8mm; v; simd128")
    group.add_argument("--precision", choices=PRECISIONS, default="f32",
                       help="the lowest precision allowed for products (default f32); "
                            "`run`, `bench` and `verify` report the error")
    group.add_argument("--mesh", metavar="AXIS=N,...", default="",
                       help="divide the model among processes that torchrun starts: dp=2,tp=2 "
                            "divides rows of inputs by two (dp) and weights by two (tp); sp=2 "
                            "divides the positions of sequences")
    group.add_argument("--library", choices=LIBRARIES, default="never",
                       help="auto: `tune` also tries library calls for products and convolutions, "
                            "which are used where they were faster; never (default)")
    group.add_argument("--exact", action="store_true",
                       help="compute quantized models as defined, in floats, instead of in "
                            "integers, whose results may be one quantization step off")
    group.add_argument("--denormals", choices=DENORMALS, default="flush",
                       help="cpu: flush (default) treats denormal floats as zero, also in "
                            "comparisons; keep computes with them")
    if checks:
        group.add_argument("--check", action=argparse.BooleanOptionalAction,
                           help="check every memory access and every run-time index; by default, "
                                "only indices are checked, on the CPU; --no-check checks nothing")
    complete(group.add_argument("--cache", metavar="DIR|off", default="default",
                                help="the cache of compiled models"), folder=True)
    group.add_argument("--threads", metavar="N", type=positive,
                       help="number of threads (default: $STRATA_NUM_THREADS, or all available)")
    group.add_argument("--interpret", action="store_true",
                       help="cuda, hip: run kernels in Triton's interpreter, without a GPU")


def add_pipeline(
    parser: argparse.ArgumentParser, tuned: bool = True, strategies: bool = True
) -> None:
    """Add changes to the pipeline and what is reported while it runs.

    `tuned`: add options for schedules, too. `strategies`: add the choice of groups of passes.
    """
    group = parser.add_argument_group("the passes")
    group.add_argument("--passes", metavar="TEXT", default="default",
                       help='such as "default,after(loop-fuse)=my-pass{n=1},without(graph-cse)"')
    if strategies:
        _add_strategies(group)
    if tuned:
        complete(group.add_argument("--schedule", metavar="FILE", type=Path,
                                    help="schedules for kernels, or scripts of steps"))
        complete(group.add_argument(
            "--tuned", metavar="FILE|auto|off", default="auto",
            help="schedules found by `tune`; auto (default): $STRATA_TUNED, or those in the cache"))
    add_plugins(group)
    reports = parser.add_argument_group("reports on standard error")
    reports.add_argument("--progress", action="store_true",
                      help="show progress, even if standard error is not a terminal")
    reports.add_argument("--timing", action="store_true", help="print the time of each pass")
    reports.add_argument("-v", "--verbose", action="store_true",
                      help="list missed optimizations node by node instead of counting them")


def _add_strategies(group: Arguments) -> None:
    group.add_argument("--strategy", choices=STRATEGIES, default=WHOLE_GRAPH,
                       help="what is optimized together: per-op computes and launches each "
                            "operator apart, block fuses around each product or reduction, "
                            "whole-graph (default) does everything")
    group.add_argument("--with", metavar="GROUP,...", dest="with_groups", type=names, default=(),
                       help="groups of passes to add to the strategy; `list groups` shows them")
    group.add_argument("--without", metavar="GROUP,...", dest="without_groups", type=names,
                       default=(), help="groups of passes to leave out, such as layout,one-launch")


def add_plugins(parser: Arguments) -> None:
    complete(parser.add_argument("--plugin", metavar="FILE", action="append", default=[],
                                 type=Path, help="a Python file with passes, dialects or targets"))


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the inputs on which a model is run."""
    group = parser.add_argument_group("the inputs")
    complete(group.add_argument(
        "--input", metavar="NAME=VALUE", action="append", default=[], type=named_value,
        help="an input: a file x.npy, or - for standard input; a number or a list, sr=16000; "
             "or a shape filled with random, zeros, ones, range or a number, "
             "x=1x3x224x224xf32=random"))
    complete(group.add_argument("--inputs", metavar="FILE.npz", type=Path,
                                help="a file of inputs, keyed by the model's names; - for "
                                     "standard input"))
    group.add_argument("--seed", metavar="N", type=seed, default=0,
                       help="the seed of random inputs, which replace those not given (default 0)")


def add_output(
    parser: Arguments, *names: str, text: str, metavar: str = "FILE"
) -> None:
    """Add the file that a command writes."""
    complete(parser.add_argument(*names, metavar=metavar, dest="output", type=Path, help=text))


def add_dump(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("dumps")
    complete(group.add_argument("--dump-dir", metavar="DIR", type=Path,
                                help="write the IR after every pass that changed it"),
             folder=True)
    group.add_argument("--dump-weights", action="store_true",
                       help="also write the weights into DIR, however large")


def complete(action: argparse.Action, folder: bool = False) -> None:
    """Mark an argument so that shell completion offers names of files or folders."""
    action.complete = ("directory" if folder else "file")  # type: ignore[attr-defined]


def options_from(
    arguments: argparse.Namespace, threads: int | None = None
) -> CompileOptions:
    """The compile options of parsed arguments. Options that a command lacks have defaults.

    `threads`: the number of threads if the arguments give none. With `--specialize` and `--open`,
    the sizes named by `--dim` stay open, and `--dim` only determines the sizes of the inputs.
    """
    given = vars(arguments)
    stay_open = given.get("specialize", False) or given.get("open", False)
    return CompileOptions(
        target=given.get("target", "cpu"), shapes=dict(given.get("shape", ())),
        dims={} if stay_open else dict(given.get("dim", ())), start=given.get("start"),
        passes=given.get("passes", "default"), strategy=given.get("strategy", WHOLE_GRAPH),
        with_groups=given.get("with_groups", ()), without_groups=given.get("without_groups", ()),
        plugins=tuple(given.get("plugin", ())),
        schedule=given.get("schedule"), weights=given.get("weights"),
        dump_dir=given.get("dump_dir"), dump_weights=given.get("dump_weights", False),
        threads=given.get("threads") or threads, features=given.get("features"),
        triple=given.get("triple"),
        precision=given.get("precision", "f32"), exact=given.get("exact", False),
        denormals=given.get("denormals", "flush"),
        check=given.get("check"),
        cache=given.get("cache", "default"), interpret=given.get("interpret", False),
        tuned=given.get("tuned", "auto"), library=given.get("library", "never"),
        mesh=given.get("mesh", ""), rank=own_rank(given.get("mesh", "")),
        specialize=Specialize() if given.get("specialize") else None)


def read_machine(given: argparse.Namespace) -> None:
    """Let `--target wasm` be `--target cpu --triple wasm`, and so for each machine for which the
    target cpu makes code."""
    if "triple" in given and given.triple is None and given.target != "cpu":
        from compiler.plugins.loading import is_machine

        if is_machine(given.target):
            given.target, given.triple = "cpu", given.target


def shell_command(words: Sequence[str]) -> str:
    """`python -m compiler ...`, quoted for a shell."""
    return shlex.join(["python", "-m", "compiler", *words])


# ---------------------------------------------------------------------- values
def named_shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """`x=1x3xheightx224` -> ("x", (1, 3, "height", 224)); `x=` is a scalar."""
    name, equals, sizes = text.rpartition("=")
    parts = [part for part in sizes.split("x") if part] if equals and name else []
    bad = [p for p in parts if not re.fullmatch(r"\d+|[^\W\d][\w.]*", p)]
    if not equals or not name or bad or (sizes and len(parts) != sizes.count("x") + 1):
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form NAME=1x3x224x224")
    return name, tuple(int(p) if p.isdecimal() else p for p in parts)


def named_size(text: str) -> tuple[str, int]:
    """`batch=8` -> ("batch", 8)."""
    name, _, number = text.rpartition("=")
    if not name or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form NAME=8")
    return name, int(number)


def named_value(text: str) -> tuple[str, str]:
    """`x=x.npy` -> ("x", "x.npy"); compiler/cli/given_inputs.py parses the value."""
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form NAME=FILE.npy, NAME=16000 "
                                         "or NAME=1x3x224x224xf32=random")
    return name, value


def tolerance(text: str) -> float:
    """A tolerated error: a number of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number >= 0")
    return number


def names(text: str) -> tuple[str, ...]:
    """`fuse,layout` -> ("fuse", "layout")."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer >= 0")
    return int(text)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive integer")
    return int(text)
