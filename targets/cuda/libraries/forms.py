"""Which kernels a library has, and how a schedule says that it is called.

A kernel's form names the library, the dims of its buffers in order, and what else there is to say:

    schedule<... | library = cublas.mk.nk.n.mn>                 x @ w.T + bias
    schedule<... | library = cudnn.nhwc.ohwc.o.nhwo.p1x1.relu>  relu(convolution + bias)

What such a kernel means stays what its nests say, so that every level executes; the tiles are those
of our own kernel, which runs where the library is missing or refuses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from dialects.block import KernelOp as BlockKernelOp
from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule
from targets.base import TargetOptions
from targets.cuda.scheduling.convolution_forms import COMPILED, CUDNN, convolution_form
from targets.cuda.scheduling.options import LIBRARY
from targets.cuda.scheduling.products.forms import CUBLAS, product_form

__all__ = ["CUBLAS", "CUDNN", "called", "form_of", "library_calls", "library_form", "library_notes",
           "library_of", "without_library"]


def form_of(kernel: BlockKernelOp | KernelOp) -> str | None:
    """The form of a kernel whose schedule says that a library is called."""
    return None if kernel.schedule is None else (
        kernel.schedule.data.option(LIBRARY) or None)


def library_of(form: str) -> str:
    """The name of the library."""
    return form.partition(".")[0]


def library_form(kernel: KernelOp, options: TargetOptions) -> str | None:
    """The form of a kernel that a library may have; None for others."""
    if options.exact:
        return None
    return product_form(kernel, options) or convolution_form(kernel, options)


def library_calls(form: str) -> Sequence[str]:
    """The ways in which a library may be called for a form, each a form."""
    return [form, f"{form}.{COMPILED}"] if library_of(form) == CUDNN else [form]


def called(schedule: Schedule, form: str) -> Schedule:
    """The schedule of a kernel that calls a library instead, where it can."""
    plain = without_library(schedule)
    return replace(plain, options=(*plain.options, (LIBRARY.name, form)))


def without_library(schedule: Schedule) -> Schedule:
    """The schedule of our own kernel."""
    return replace(schedule, options=tuple(o for o in schedule.options if o[0] != LIBRARY.name))


def library_notes(kernels: Sequence[BlockKernelOp]) -> list[str]:
    """`library cublas: @contract_2 mk.kn.mn, ...`: the kernels that call each."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for kernel in kernels:
        form = form_of(kernel)
        if form is not None:
            name, _, rest = form.partition(".")
            found[name].append(f"@{kernel.sym_name.data} {rest}")
    return [f"library {name}: {', '.join(calls)}" for name, calls in sorted(found.items())]
