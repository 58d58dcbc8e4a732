"""Schedule rules of the CUDA target: what one program computes, and with how many warps.

The first rule that fits decides: depthwise windows, their filters' gradients, a convolution, a
matrix product on tensor cores or FMA units, another contraction, a recurrence, a reduction, an
elementwise kernel. Tiles are powers of two, and the rest is masked. Sizes come from the kernel's
own axes. Tuning replaces these choices by measured ones.

    products/          contractions             convolutions.py   contractions that read by windows
    convolution_roles.py, convolution_layouts.py    their axes, and their operands in memory
    strips.py          depthwise windows, in strips of rows
    windows.py         other depthwise windows
    recurrences.py     recurrences, and reductions of their last states
    attention.py       products with an online softmax
    sorts.py           rows that are sorted in a tile
    recomputed.py      products with the products of their factors
    memory/sums.py     sums of a few parts      memory_bound.py   other reductions, elementwise
    memory/walks.py    steps of rows that are too long to hold
    memory/turned.py   copies whose source and result run along different axes
    memory/flat.py     elementwise kernels whose rows fill a part of a tile
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Schedule
from passes.analyses.loop.kinds import is_contraction
from passes.contract import Packing, Parts
from passes.rewrites.loop.axis_fusion import fuse_axes
from targets.cuda.libraries.forms import CUDNN, form_of, library_of
from targets.cuda.scheduling.attention import is_attention, prepare_attention, schedule_attention
from targets.cuda.scheduling.convolution_forms import packing
from targets.cuda.scheduling.convolution_layouts import convolution_panels, prepare_convolution
from targets.cuda.scheduling.convolution_roles import is_convolution
from targets.cuda.scheduling.convolutions import convolution_parts, schedule_convolution
from targets.cuda.scheduling.memory.flat import prepare_flat
from targets.cuda.scheduling.memory.sums import sum_of_parts
from targets.cuda.scheduling.memory.turned import prepare_turned, schedule_turned
from targets.cuda.scheduling.memory_bound import elementwise, reduction, walked_alike
from targets.cuda.scheduling.options import DESCEND, LIBRARY, SPECIALIZE, STRIP
from targets.cuda.scheduling.products.fma import fma_parts, schedule_fma_product
from targets.cuda.scheduling.products.parts import idle_parts, product_parts
from targets.cuda.scheduling.products.rules import panels, prepare_product, schedule_product
from targets.cuda.scheduling.products.tap_products import (
    prepare_taps,
    schedule_taps,
    tap_nest,
)
from targets.cuda.scheduling.recomputed import is_recomputed, schedule_recomputed
from targets.cuda.scheduling.recurrences import schedule_recurrence
from targets.cuda.scheduling.sorts import schedule_sort, sorting_nest
from targets.cuda.scheduling.strips import (
    prepare_strips,
    schedule_strips,
    strip_panels,
    strips_nest,
)
from targets.cuda.scheduling.windows import (
    prepare_small_windows,
    prepare_windows,
    schedule_small_windows,
    schedule_windows,
    small_windows,
    window_panels,
    windowed_nest,
)
from targets.options import TargetOptions


def prepare_kernel(kernel: KernelOp, options: TargetOptions) -> None:
    """Fuse the axes of each role of a matrix product, and the axes that a reduction sums over. In
    attention, move the mask of the scores before their scaling."""
    nest = next((n for n in kernel.nests if is_contraction(n)), None)
    if is_attention(kernel):
        prepare_attention(kernel)
    elif is_recomputed(kernel) or prepare_strips(kernel):
        pass
    elif small := small_windows(kernel):
        prepare_small_windows(kernel, small)
    elif (windowed := windowed_nest(kernel)) is not None:
        prepare_windows(kernel, windowed)
    elif (taps := tap_nest(kernel)) is not None:
        prepare_taps(kernel, taps)
    elif nest is not None and is_convolution(nest):
        prepare_convolution(kernel, nest, options)
    elif nest is not None:
        prepare_product(kernel, nest)
    elif any(n.is_recurrence for n in kernel.nests):
        pass
    elif any(n.is_reduction for n in kernel.nests):
        for names in walked_alike(kernel):
            fuse_axes(kernel, names)
    elif not prepare_turned(kernel, options):
        prepare_flat(kernel, options)


def schedule_kernel(kernel: KernelOp, options: TargetOptions) -> Schedule:
    """The schedule of a kernel."""
    nest = next((n for n in kernel.nests if is_contraction(n)), None)
    if is_attention(kernel):
        return schedule_attention(kernel, options)
    if is_recomputed(kernel):
        return schedule_recomputed(kernel, options)
    if (filtered := strips_nest(kernel)) is not None:
        return schedule_strips(kernel, filtered, options)
    if small := small_windows(kernel):
        return schedule_small_windows(kernel, small, options)
    if (windowed := windowed_nest(kernel)) is not None:
        return schedule_windows(kernel, windowed, options)
    if (taps := tap_nest(kernel)) is not None:
        return schedule_taps(kernel, taps)
    if nest is not None and is_convolution(nest):
        return schedule_convolution(kernel, nest, options)
    if nest is not None and (schedule := schedule_fma_product(kernel, nest, options)) is not None:
        return schedule
    if nest is not None:
        return schedule_product(kernel, nest, options)
    if (sorting := sorting_nest(kernel)) is not None:
        return schedule_sort(kernel, sorting, options)
    if any(n.is_recurrence for n in kernel.nests):
        return schedule_recurrence(kernel)
    if any(n.is_reduction for n in kernel.nests):
        return sum_of_parts(kernel, options) or reduction(kernel, options)
    return schedule_turned(kernel, options) or elementwise(kernel, options)


def operand_panels(
    kernel: KernelOp, nest: NestOp, constants: Collection[int], options: TargetOptions
) -> Mapping[int, Packing] | None:
    """Which inputs of a contraction to pack, and how; None: none. cuDNN needs its own layouts."""
    form = form_of(kernel)
    if form is not None:
        return packing(nest) if library_of(form) == CUDNN else None
    if strips_nest(kernel) is nest:
        return strip_panels(nest)
    if windowed_nest(kernel) is nest:
        return window_panels(nest)
    if is_convolution(nest) and not is_attention(kernel):
        return convolution_panels(kernel, nest, options)
    return panels(kernel, nest, constants)


def sum_parts(nest: NestOp, options: TargetOptions) -> Parts | None:
    """Which summed axis of a contraction to split, and into how many parts; None: none."""
    if is_convolution(nest):
        return convolution_parts(nest, options)
    return (fma_parts(nest, options) or product_parts(nest, options)
            or idle_parts(nest, options))


def joins_launches(schedule: Schedule) -> bool:
    """Whether a kernel can be a part of another one: its programs are numbered in the plain order,
    and it is neither warp-specialized nor a library's."""
    return not (schedule.option(SPECIALIZE) or schedule.option(DESCEND) or schedule.option(LIBRARY)
                or schedule.option(STRIP) > 1)
