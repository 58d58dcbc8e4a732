"""What the options and modes of `torch.compile` for PyTorch's own compiler mean here.

    options={"max_autotune": True, "epilogue_fusion": True}    ->    mode="max-autotune"

Each name of the table is one of ours, has no effect and says why, or is refused with what to do
instead. `docs/vocabulary.md` is written from this table. Options of PyTorch's compiler that are not
in it choose among its own kernels; they have no effect and are named once, at level INFO.

The module can be imported without torch.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler.diagnostics import Problem, StrataError
from compiler.suggestions import guess

log = logging.getLogger("strata")

MODES = {"max-autotune-no-cudagraphs": ("max-autotune", "one-launch")}
"""Modes of PyTorch -> a mode of ours, and the group of passes that is left out."""


PLAIN = frozenset((
    "target", "threads", "passes", "strategy", "features", "precision", "exact", "denormals",
    "check", "interpret", "library"))
"""Options of `compiler.compile` that become those of a compilation as they are."""


@dataclass(frozen=True)
class Meaning:
    """What an option means. `note`: a sentence for readers. `ours`: our options for a value; None
    if it has no effect. `refused`: the values that are refused, with the note as what to do."""

    note: str
    ours: Callable[[Any], Mapping[str, Any]] | None = None
    refused: tuple[Any, ...] = ()


def _without(group: str) -> Callable[[Any], Mapping[str, Any]]:
    """True changes nothing; False leaves out a group of passes."""
    return lambda value: {} if value else {"without_groups": (group,)}


def _tunes(value: Any) -> Mapping[str, Any]:
    return {"mode": "max-autotune"} if value else {}


OPTIONS: Mapping[str, Meaning] = {
    "max_autotune": Meaning("The mode `max-autotune`: kernels are tuned by measuring.", _tunes),
    "max_autotune_gemm": Meaning("As `max_autotune`.", _tunes),
    "max_autotune_pointwise": Meaning("As `max_autotune`.", _tunes),
    "coordinate_descent_tuning": Meaning("As `max_autotune`.", _tunes),
    "epilogue_fusion": Meaning("False leaves out the group of passes `fuse`.", _without("fuse")),
    "prologue_fusion": Meaning("As `epilogue_fusion`.", _without("fuse")),
    "pattern_matcher": Meaning("False leaves out the group `simplify`.", _without("simplify")),
    "layout_optimization": Meaning("False leaves out the group `layout`.", _without("layout")),
    "split_reductions": Meaning("False leaves out the group `split`.", _without("split")),
    "allow_buffer_reuse": Meaning("False leaves out the group `memory`.", _without("memory")),
    "triton.cudagraphs": Meaning("On a GPU, a program is one CUDA graph; False leaves out the "
                                 "group `one-launch`.", _without("one-launch")),
    "cpp.threads": Meaning("The number of threads; -1 stands for all.",
                           lambda value: {} if value in (None, -1) else {"threads": value}),
    "trace.enabled": Meaning("True writes every level and pass to a folder, as "
                             "`TORCH_COMPILE_DEBUG=1` does.",
                             lambda value: {"dump_dir": debug_folder()} if value else {}),
    "trace.debug_dir": Meaning("The folder of such dumps.", lambda value: {"dump_dir": value}),
    "force_disable_caches": Meaning("True is `cache=\"off\"`.",
                                    lambda value: {"cache": "off"} if value else {}),
    "fx_graph_cache": Meaning("False is `cache=\"off\"`.",
                              lambda value: {} if value else {"cache": "off"}),
    "shape_padding": Meaning("Tiles that reach beyond a tensor are masked, so nothing is padded."),
    "comprehensive_padding": Meaning("As `shape_padding`."),
    "fallback_random": Meaning("Random numbers are always those of eager mode."),
    "freezing": Meaning("In inference, weights are packed and folded anyway."),
    "benchmark_fusion": Meaning("What is fused is decided by the pass `loop-fuse`."),
    "aggressive_fusion": Meaning("What is fused is decided by the pass `loop-fuse`."),
    "combo_kernels": Meaning("Independent kernels of a CUDA graph overlap."),
    "group_fusion": Meaning("As `combo_kernels`."), "batch_fusion": Meaning("As `combo_kernels`."),
    "b2b_gemm_pass": Meaning("The pass `loop-join-rows` keeps what is between two products."),
    "conv_1x1_as_mm": Meaning("A convolution of one tap is tiled as a product is."),
    "triton.cudagraph_trees": Meaning("Each program has its own CUDA graph."),
    "memory_planning": Meaning("Values share one arena, unless `allow_buffer_reuse` is False."),
    "inplace_buffers": Meaning("As `memory_planning`."),
    "size_asserts": Meaning("Sizes are checked once for each set of them."),
    "compile_threads": Meaning("Kernels are compiled in as many processes as is fast."),
    "emulate_precision_casts": Meaning("Each operator on halves is rounded once, as in eager mode, "
                                       "except inside a kernel.", refused=(True,)),
    "cpp_wrapper": Meaning("Write a library with a C interface: `python -m compiler compile model "
                           "-o model.so`.", refused=(True,)),
    "aot_inductor.package": Meaning("Save the program: `exe.save(path)` of `compiler.compile`.",
                                    refused=(True,)),
    "trace.graph_diagram": Meaning("Write a page: `python -m compiler report model -o page.html`.",
                                   refused=(True,)),
    "profiler_mark_wrapper_call": Meaning("Time kernels: `compiler.profile(model, x)`.",
                                          refused=(True,)),
    "benchmark_kernel": Meaning("Time kernels: `compiler.profile(model, x)`.", refused=(True,)),
    "nan_asserts": Meaning("Find the first wrong pass: `python -m compiler verify`.",
                           refused=(True,)),
}
"""Option of PyTorch's compiler -> what it means here."""


def translated(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of `compiler.compile` for those of `torch.compile`.

    Raises StrataError for those that are refused, and for names that are none.
    """
    found: dict[str, Any] = {}
    if mode in MODES:
        mode, group = MODES[mode]
        _merge(found, {"without_groups": (group,)})
    if mode is not None:
        found["mode"] = mode
    problems: list[Problem] = []
    own = _own_options()
    for name, value in (options or {}).items():
        if name in own:
            _merge(found, {name: value})
        elif name in OPTIONS:
            problems += _meant(found, name, value)
        elif name in _of_pytorch():
            log.info("strata: the option %s of PyTorch's compiler has no effect", name)
        else:
            there = (*own, *OPTIONS)
            problems.append(Problem(f"there is no option {name!r}",
                                    hint=f"{guess(name, there)}docs/vocabulary.md lists them"))
    if problems:
        raise StrataError("torch.compile(backend=\"strata\") has wrong options", problems)
    return found


def _meant(found: dict[str, Any], name: str, value: Any) -> list[Problem]:
    """Add what an option means to those found. Returns the problem of one that is refused."""
    meaning = OPTIONS[name]
    if value in meaning.refused:
        return [Problem(f"{name}={value!r} is not done here", hint=meaning.note)]
    if meaning.ours is not None:
        _merge(found, meaning.ours(value))
    return []


def _merge(found: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Groups that are left out add up."""
    for name, value in more.items():
        if name == "without_groups" and name in found:
            value = tuple(dict.fromkeys((*found[name], *value)))
        found[name] = value


def _own_options() -> list[str]:
    """The options of `compiler.compile` but for its model and what describes that."""
    from compiler.api import compile as compile_model

    names = list(inspect.signature(compile_model).parameters)
    return [n for n in names if n not in ("model", "args", "kwargs", "dynamic_shapes")]


def _of_pytorch() -> frozenset[str]:
    """All options of PyTorch's compiler."""
    from compiler.frontend.torch.library import torch_module

    return frozenset(torch_module("torch._inductor").list_options())


def check_values(options: Mapping[str, Any]) -> None:
    """Raises StrataError for bad values of options, before any graph is compiled: later, it would
    only say why a part of a graph runs eagerly."""
    from compiler.option_values import paths_of
    from compiler.options import CompileOptions

    CompileOptions(**{name: options[name] for name in options.keys() & PLAIN})
    if options.keys() & {"target", "plugins"}:
        from compiler.plugins.plugin_files import load_plugins

        plugins = load_plugins(paths_of("plugins", options.get("plugins", ())))
        plugins.find_target(options.get("target", "cpu"))


def debug_folder() -> str:
    """Where PyTorch writes what it is asked to trace."""
    from compiler.frontend.torch.library import torch_module

    return f"{torch_module('torch._dynamo.utils').get_debug_dir()}/strata"
