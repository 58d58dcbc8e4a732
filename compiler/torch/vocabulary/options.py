"""The options of `torch.compile` for PyTorch's own compiler that have a name of their own here.

    options={"max_autotune": True, "epilogue_fusion": True}    ->    mode="max-autotune"

Each is one of ours, has no effect and says why, or is refused with what to do instead. The others
are in `families.py`. `docs/vocabulary.md` is written from both.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from compiler.frontend.torch.library import torch_module
from compiler.torch.vocabulary.families import family_of
from compiler.torch.vocabulary.meanings import Meaning, Ours, refused

MODES = {"max-autotune-no-cudagraphs": ("max-autotune", "one-launch")}
"""Modes of PyTorch -> a mode of ours, and the group of passes that is left out."""


def debug_folder() -> str:
    """Where PyTorch writes what it is asked to trace."""
    return f"{torch_module('torch._dynamo.utils').get_debug_dir()}/strata"


def _without(group: str) -> Ours:
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
                                 "group `one-launch`.", _without("one-launch"), is_switch=False),
    "cpp.threads": Meaning("The number of threads; -1 stands for all.",
                           lambda value: {} if value in (None, -1) else {"threads": value}),
    "trace.enabled": Meaning("True writes every level and pass to a folder, as "
                             "`TORCH_COMPILE_DEBUG=1` does.",
                             lambda value: {"dump_dir": debug_folder()} if value else {}),
    "trace.debug_dir": Meaning("The folder of such dumps.",
                               lambda value: {"dump_dir": value} if value else {}),
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
    "emulate_precision_casts": refused("Each operator on halves is rounded once, as in eager mode, "
                                       "except inside a kernel."),
    "cpp_wrapper": refused("Write a library with a C interface: `python -m compiler compile model "
                           "-o model.so`."),
    "aot_inductor.package": refused("Save the program: `exe.save(path)` of `compiler.compile`."),
    "trace.graph_diagram": refused("Write a page: `python -m compiler report model -o page.html`."),
    "profiler_mark_wrapper_call": refused("Time kernels: `compiler.profile(model, x)`."),
    "benchmark_kernel": refused("Time kernels: `compiler.profile(model, x)`."),
    "nan_asserts": refused("Find the first wrong pass: `python -m compiler verify`."),
}
"""Option of PyTorch's compiler -> what it means here."""


@cache
def meaning_of(name: str) -> Meaning | None:
    """What an option of PyTorch's compiler means here; None for a name that is unknown here."""
    return OPTIONS.get(name) or family_of(name)
