"""The options that commands share: how they are spelled, and what they become."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from compiler.options import DENORMALS, LIBRARIES, PRECISIONS, CompileOptions, Specialize


class Arguments(Protocol):
    """A parser, or a group of one's arguments."""

    def add_argument(self, *names: str, **about: Any) -> argparse.Action: ...


TEXT_LEVELS = ("graph", "loop", "host", "block")
MODEL_HELP = ("an .onnx or .pt2 file, a .mlir text, file.py:function, or - for an ONNX model or a "
              "text on standard input")


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL, its sizes, and where its weights are."""
    group = parser.add_argument_group("the model")
    complete(group.add_argument("model", metavar="MODEL", help=MODEL_HELP))
    group.add_argument("--shape", metavar="NAME=1x3x224x224", action="append", default=[],
                       type=named_shape, help="fix an input's sizes; a size may be a name")
    group.add_argument("--dim", metavar="NAME=N", action="append", default=[], type=named_size,
                       help="fix a size that the model names")
    complete(group.add_argument(
        "--weights", metavar="FILE", type=Path,
        help="weights of a .mlir text: a weights.npz, or the model it comes from"))


def add_target(parser: argparse.ArgumentParser, checks: bool = True) -> None:
    """The target and the options that it takes. `checks`: --check as well."""
    group = parser.add_argument_group("the target")
    group.add_argument("--target", metavar="T", default="cpu",
                       help="cpu (default), cuda, hip, reference, or a plugin's")
    group.add_argument("--features", metavar="NAME",
                       help="machine features instead of this machine's: avx2, avx512; "
                            "sm_90; gfx942")
    group.add_argument("--precision", choices=PRECISIONS, default="f32",
                       help="the least precision of products (default f32); "
                            "`run`, `bench` and `verify` tell the error")
    group.add_argument("--library", choices=LIBRARIES, default="never",
                       help="auto: `tune` tries calls of libraries for products and convolutions, "
                            "which are made where they were faster; never (default)")
    group.add_argument("--exact", action="store_true",
                       help="compute quantized models as they are defined, in floats, instead of "
                            "in integers with results up to one quantization step off")
    group.add_argument("--denormals", choices=DENORMALS, default="flush",
                       help="cpu: flush (default) takes floats below the least normal number for "
                            "zeros, comparisons too; keep computes with them")
    if checks:
        group.add_argument("--check", action=argparse.BooleanOptionalAction,
                           help="check every access of a run to memory, and every index that data "
                                "bring; default: indices, on the CPU; nothing with --no-check")
    complete(group.add_argument("--cache", metavar="DIR|off", default="default",
                                help="where compiled models are kept"), folder=True)
    group.add_argument("--threads", metavar="N", type=positive,
                       help="default: $STRATA_NUM_THREADS, else all that may be used")
    group.add_argument("--interpret", action="store_true",
                       help="cuda, hip: run kernels in Triton's interpreter, without a GPU")


def add_pipeline(parser: argparse.ArgumentParser, tuned: bool = True) -> None:
    """Changes to the pipeline, and what is said while it runs. `tuned`: of schedules by name, too.
    """
    group = parser.add_argument_group("the passes")
    group.add_argument("--passes", metavar="TEXT", default="default",
                       help='such as "default,after(loop-fuse)=my-pass{n=1},without(graph-cse)"')
    if tuned:
        complete(group.add_argument("--schedule", metavar="FILE", type=Path,
                                    help="schedules for kernels, or scripts of steps"))
        complete(group.add_argument(
            "--tuned", metavar="FILE|auto|off", default="auto",
            help="schedules that `tune` has found; auto (default): $STRATA_TUNED, else those in "
                 "the cache"))
    add_plugins(group)
    told = parser.add_argument_group("what is told on standard error")
    told.add_argument("--progress", action="store_true",
                      help="what is being done, also where it is no terminal")
    told.add_argument("--timing", action="store_true", help="how long each pass took")
    told.add_argument("-v", "--verbose", action="store_true",
                      help="what was not done, node by node instead of counted")


def add_plugins(parser: Arguments) -> None:
    complete(parser.add_argument("--plugin", metavar="FILE", action="append", default=[],
                                 type=Path, help="a Python file with passes, dialects or targets"))


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """What a model is run on."""
    group = parser.add_argument_group("the inputs")
    complete(group.add_argument(
        "--input", metavar="NAME=VALUE", action="append", default=[], type=named_value,
        help="an input: x.npy, or - for one on standard input; a number or a list, sr=16000; "
             "random, zeros, ones, range or a number of a shape, x=1x3x224x224xf32=random"))
    complete(group.add_argument("--inputs", metavar="FILE.npz", type=Path,
                                help="inputs from a file, by the model's names; - for standard "
                                     "input"))
    group.add_argument("--seed", metavar="N", type=seed, default=0,
                       help="of the random inputs, for what nothing else gives (default 0)")


def add_output(
    parser: Arguments, *names: str, text: str, metavar: str = "FILE"
) -> None:
    """The file that a command writes."""
    complete(parser.add_argument(*names, metavar=metavar, dest="output", type=Path, help=text))


def add_dump(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("dumps")
    complete(group.add_argument("--dump-dir", metavar="DIR", type=Path,
                                help="write the text after every pass that changed something"),
             folder=True)
    group.add_argument("--dump-weights", action="store_true",
                       help="write the weights into DIR too, however large")


def complete(action: argparse.Action, folder: bool = False) -> None:
    """Let shells complete the names of files, or of folders; `completion` writes that down."""
    action.complete = ("directory" if folder else "file")  # type: ignore[attr-defined]


def options_from(
    arguments: argparse.Namespace, threads: int | None = None
) -> CompileOptions:
    """The compile options of parsed arguments; what a command does not take has its default.

    `threads`: the number where the arguments name none. With `--specialize` and `--open` the sizes
    that `--dim` names stay open; it then says what sizes the inputs have.
    """
    given = vars(arguments)
    stay_open = given.get("specialize", False) or given.get("open", False)
    return CompileOptions(
        target=given.get("target", "cpu"), shapes=dict(given.get("shape", ())),
        dims={} if stay_open else dict(given.get("dim", ())), start=given.get("start"),
        passes=given.get("passes", "default"), plugins=tuple(given.get("plugin", ())),
        schedule=given.get("schedule"), weights=given.get("weights"),
        dump_dir=given.get("dump_dir"), dump_weights=given.get("dump_weights", False),
        threads=given.get("threads") or threads, features=given.get("features"),
        precision=given.get("precision", "f32"), exact=given.get("exact", False),
        denormals=given.get("denormals", "flush"),
        check=given.get("check"),
        cache=given.get("cache", "default"), interpret=given.get("interpret", False),
        tuned=given.get("tuned", "auto"), library=given.get("library", "never"),
        specialize=Specialize() if given.get("specialize") else None)


def shell_command(words: Sequence[str]) -> str:
    """`python -m compiler ...` as a shell takes it."""
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
    """`x=x.npy` -> ("x", "x.npy"); what the value means, `compiler/cli/given_inputs.py` knows."""
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form NAME=FILE.npy, NAME=16000 "
                                         "or NAME=1x3x224x224xf32=random")
    return name, value


def tolerance(text: str) -> float:
    """An error that is granted: a number from 0 on."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 0 on")
    return number


def seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 0 on")
    return int(text)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no positive number")
    return int(text)
