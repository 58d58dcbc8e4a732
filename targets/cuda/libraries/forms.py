"""Which kernels a library supports, and how a schedule says that it is called.

A kernel's form names the library, the dims of its buffers in order, and further words:

    schedule<... | library = cublas.mk.nk.n.mn>                 x @ w.T + bias
    schedule<... | library = cudnn.nhwc.ohwc.o.nhwo.p1x1.relu>  relu(convolution + bias)

The kernel's nests still define what it computes, so every level can be executed. Its tiles are
those of our own kernel, which runs if the library is missing or does not support the call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from dialects.block import KernelOp as BlockKernelOp
from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule
from targets.cuda.libraries.words import COMPILED, CUBLAS, CUDNN
from targets.cuda.scheduling.convolution_forms import convolution_form
from targets.cuda.scheduling.options import LIBRARY
from targets.cuda.scheduling.products.forms import product_form
from targets.options import TargetOptions

__all__ = ["CUBLAS", "CUDNN", "called", "form_of", "library_calls", "library_form", "library_notes",
           "library_of", "without_library"]


def form_of(kernel: BlockKernelOp | KernelOp) -> str | None:
    """The form of a kernel whose schedule calls a library; None for other kernels."""
    return None if kernel.schedule is None else (
        kernel.schedule.data.option(LIBRARY) or None)


def library_of(form: str) -> str:
    """The name of a form's library."""
    return form.partition(".")[0]


def library_form(kernel: KernelOp, options: TargetOptions) -> str | None:
    """The form of a kernel that a library may support; None for other kernels."""
    if options.exact:
        return None
    return product_form(kernel, options) or convolution_form(kernel, options)


def library_calls(form: str) -> Sequence[str]:
    """The ways to call a library for a form, each as a form."""
    return [form, f"{form}.{COMPILED}"] if library_of(form) == CUDNN else [form]


def called(schedule: Schedule, form: str) -> Schedule:
    """The schedule with a call of the library, used where that is possible."""
    plain = without_library(schedule)
    return replace(plain, options=(*plain.options, (LIBRARY.name, form)))


def without_library(schedule: Schedule) -> Schedule:
    """The schedule of our own kernel, without a library."""
    return replace(schedule, options=tuple(o for o in schedule.options if o[0] != LIBRARY.name))


def library_notes(kernels: Sequence[BlockKernelOp]) -> list[str]:
    """`library cublas: @contract_2 mk.kn.mn, ...`: per library, the kernels that call it."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for kernel in kernels:
        form = form_of(kernel)
        if form is not None:
            name, _, rest = form.partition(".")
            found[name].append(f"@{kernel.sym_name.data} {rest}")
    return [f"library {name}: {', '.join(calls)}" for name, calls in sorted(found.items())]
