"""A CUDA program as C: its kernels as tables, and its launches as a function over its sizes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cpu.artifact.c_text import CExpressions, SharedExpressions, quoted
from targets.cpu.artifact.tables import Runtime
from targets.cuda.build.source import NARROW_ELEMENTS
from targets.cuda.machine import WARP, machine_of
from targets.cuda.runtime.planned import (
    ARENA,
    NUMBERED,
    Collect,
    Copy,
    HostPlan,
    Launch,
    Place,
)
from targets.cuda.runtime.tensor_maps import HOST_TYPES
from targets.cuda.runtime.variants.variant import Compiled, Variant

_HERE = Path(__file__).parent
ALIGNMENT = 256
"""Of constants, as kernels rely on it."""

DECLARATIONS = """
/* Of models on a GPU. The data of inputs and outputs are addresses on the device. A call returns
   when its work is on the stream; `synchronize` waits for that, and `upload` and `download` wait,
   too. The stream is a CUstream; work of states on other streams is in no order with it. */
int MODEL_set_stream(MODEL_state *state, void *stream);
int MODEL_synchronize(MODEL_state *state);
int MODEL_allocate(MODEL_state *state, size_t bytes, void **memory);
void MODEL_release(MODEL_state *state, void *memory);
int MODEL_upload(MODEL_state *state, void *device, const void *host, size_t bytes);
int MODEL_download(MODEL_state *state, void *host, const void *device, size_t bytes);"""
"""What the header of a model on a GPU declares besides."""
FUNCTIONS = ("allocate", "download", "release", "set_stream", "synchronize", "upload")


class Code(NamedTuple):
    """The compiled variants of a plan's kernels, and all cubins in one text."""

    variants: Mapping[Variant, Compiled]
    cubins: Sequence[bytes]

    @staticmethod
    def of(variants: Mapping[Variant, Compiled]) -> Code:
        return Code(variants, list(dict.fromkeys(c.binary.code for c in variants.values())))

    @property
    def starts(self) -> list[int]:
        """Where each cubin begins: at multiples of 64 bytes."""
        found = [0]
        for cubin in self.cubins:
            found.append(-(-(found[-1] + len(cubin)) // 64) * 64)
        return found

    @property
    def blob(self) -> bytes:
        return b"".join(cubin + bytes(-len(cubin) % 64) for cubin in self.cubins)

    @property
    def packed(self) -> bytes:
        """All cubins as a library holds them: `deflate`, which leaves a quarter, without a head."""
        packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        return packer.compress(self.blob) + packer.flush()


def runtime_of(
    plan: HostPlan, code: Code, symbols: Sequence[Symbol], arch: str, kernels_symbol: str
) -> Runtime:
    """The C of a program that runs on a GPU of an architecture. `symbols`: the sizes of inputs."""
    number = arch.removeprefix("sm_")
    defines = ["#include <dlfcn.h>", f"#define ARCH_MAJOR {number[:-1]}",
               f"#define ARCH_MINOR {number[-1]}", f"#define MODULES {len(code.cubins)}",
               f"#define VARIANTS {len(code.variants)}", f"#define GRAPH_NODES {len(plan.steps)}",
               f"#define NODE_WORDS {len(plan.steps) // 64 + 1}",
               f"#define GRAPH_RANGES {sum(len(step.places) for step in plan.steps)}",
               f"#define GRAPH_LANES {machine_of(arch).fitted.graph_lanes}",
               f"#define KERNELS_SYMBOL {kernels_symbol}",
               f"#define PACKED_BYTES {len(code.packed)}u",
               f"#define KERNELS_SUM {zlib.crc32(code.blob)}u",
               "extern const unsigned char KERNELS_SYMBOL[];"]
    starts = ", ".join(f"{start}u" for start in code.starts)
    tables = [f"static const uint64_t module_starts[] = {{{starts}}};", "",
              *_kernel_tables(plan, code)]
    return Runtime(
        [], [*defines, "", _file("device_state.c"), *tables],
        [_file("unpack.c"), _file("device.c")],
        ["static int run_steps(STATE *s, void *stream, graph *made);", "", _file("device_graph.c"),
         _file("device_runs.c"), *_steps_text(plan, code, symbols)])


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


# ---------------------------------------------------------------------- kernels
def _kernel_tables(plan: HostPlan, code: Code) -> list[str]:
    before: list[str] = []
    rows: list[str] = []
    kernels: list[str] = []
    for kernel in plan.kernels:
        own = [(v, c) for v, c in code.variants.items() if v[0] is kernel]
        own.sort(key=lambda found: -len(found[0][1]))  # the one with most multiples of 16 first
        writes = "".join(f"{int(k in kernel.written)}, " for k, _ in enumerate(kernel.buffers))
        before.append(f"static const unsigned char writes_{len(kernels)}[] = {{{writes}0}};")
        kernels.append(f"    {{{quoted(kernel.name)}, {len(kernel.buffers)}, "
                       f"{len(kernel.size_names)}, {len(kernel.grid)}, {len(rows)}, {len(own)}, "
                       f"writes_{len(kernels)}}},")
        for variant, compiled in own:
            before += _variant_arrays(len(rows), variant, compiled)
            rows.append(_variant_row(len(rows), variant, compiled, code))
    return [*before, "static const variant variants[] = {", *rows,
            "    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},", "};", "",
            "static const kernel kernels[] = {", *kernels, "    {0, 0, 0, 0, 0, 0, 0},", "};"]


def _variant_arrays(number: int, variant: Variant, compiled: Compiled) -> list[str]:
    binary, kernel = compiled.binary, variant[0]
    widths = ", ".join(map(str, [*binary.parameters, 0]))
    rows: list[str] = []
    for d in sorted(binary.descriptors, key=lambda d: d.place):
        type_ = kernel.buffers[d.place]
        kind = HOST_TYPES.get(d.element, d.element)
        box = ", ".join(map(str, d.box))
        first = sum(buffer.rank for buffer in kernel.buffers[:d.place])
        rows.append(f"    {{{d.place}, {first}, {type_.rank}, {type_.dtype.itemsize}, {kind}, "
                    f"{d.swizzle}, {{{box}}}}},")
    return [f"static const unsigned char widths_{number}[] = {{{widths}}};",
            f"static const descriptor descriptors_{number}[] = {{", *rows,
            "    {0, 0, 0, 0, 0, 0, {0}},", "};"]


def _variant_row(number: int, variant: Variant, compiled: Compiled, code: Code) -> str:
    binary, source = compiled.binary, compiled.source
    names = variant[0].size_names
    divisible = sum(1 << k for k, name in enumerate(names) if name in variant[1])
    module = code.cubins.index(binary.code)
    return (f"    {{{code.starts[module]}u, UINT64_C({divisible}), {quoted(binary.entry)}, "
            f"{module}, {binary.shared}, {WARP * binary.warps}, {source.groups}, "
            f"{source.row_axis}, {int(source.stays)}, {int(source.waits)}, "
            f"{len(binary.parameters)}, {len(binary.descriptors)}, widths_{number}, "
            f"descriptors_{number}}},")


# ---------------------------------------------------------------------- launches
def _steps_text(plan: HostPlan, code: Code, symbols: Sequence[Symbol]) -> list[str]:
    """The function that enqueues all steps on a stream, or adds them to a graph.

    Steps share sizes, offsets and limits, most of which are long: written out at each step, those
    of a convolutional network with open sizes would take a C compiler minutes.
    """
    mapped = {variant[0] for variant, found in code.variants.items() if found.binary.descriptors}
    c = SharedExpressions({s: f"n[{k}]" for k, s in enumerate(symbols)})
    numbers = {kernel: k for k, kernel in enumerate(plan.kernels)}
    lines: list[str] = []
    for step in plan.steps:
        assert not isinstance(step, Collect), "a library has no communication"
        when = None if isinstance(step, Copy) else step.when
        chosen = "" if when is None else f" && {c.value(when)} != 0"
        lines += [f"    if (status == 0{chosen}) {{", *(f"        {line}" for line in (
            _copy(step, c) if isinstance(step, Copy) else
            _launch(step, c, numbers[step.kernel], step.kernel in mapped))), "    }"]
    return ["static int run_steps(STATE *s, void *stream, graph *made) {",
            "    const int64_t *n = s->sizes;", "    int status = 0;", "    (void)n;",
            *c.lines, *lines, "    return status;", "}"]


def _address(place: Place, c: CExpressions) -> str:
    """Where a buffer lies: among constants, in the arena, or in the caller's memory."""
    if place.memory == NUMBERED:
        return f"(uintptr_t)s->table[FIRST_CONSTANT + {c.value(place.offset)}].at"
    start = "s->arena" if place.memory == ARENA else f"s->table[FIRST_ARGUMENT + {place.memory}].at"
    offset = c.value(place.offset)
    return f"(uintptr_t){start}{'' if offset == '0' else f' + (uint64_t){offset}'}"


def _accessed(places: Sequence[Place], c: CExpressions) -> list[str]:
    """The addresses `a` and the bytes `b` of buffers; of constants, which none writes, no bytes."""
    return [_array("a", "uint64_t", (_address(p, c) for p in places)),
            _array("b", "uint64_t", ("0" if p.memory == NUMBERED else f"(uint64_t){c.value(p.size)}"
                                     for p in places))]


def _copy(step: Copy, c: CExpressions) -> list[str]:
    return [*_accessed(step.places, c),
            f"status = copy(s, a, b, {c.value(step.source.size)}, stream, made);"]


def _launch(step: Launch, c: CExpressions, number: int, is_mapped: bool) -> list[str]:
    """`is_mapped`: whether buffers are passed as tensor maps, so that their shapes are needed."""
    kernel, given = step.kernel, dict(zip(step.kernel.size_names, step.sizes, strict=True))

    def value(own: Expr) -> str:
        """An expression of the kernel's own sizes."""
        return c.value(own.substitute(given))

    shapes = [value(size) for buffer in kernel.buffers for size in buffer.shape] if (
        is_mapped) else []
    return [_array("z", "int64_t", map(c.value, step.sizes)),
            _array("grid", "int64_t", map(value, kernel.grid)),
            *_accessed(step.buffers, c), _array("shapes", "int64_t", shapes),
            *_limits(map(value, kernel.counts), kernel.name),
            f"if (status == 0) status = launch(s, &kernels[{number}], a, b, z, grid, shapes, "
            "stream, made);"]


def _array(name: str, type_: str, values: Iterable[str]) -> str:
    texts = ", ".join([*values, "0"])
    return f"const {type_} {name}[] = {{{texts}}};"


def _limits(counts: Iterable[str], kernel: str) -> list[str]:
    """Buffers of more elements need code with wider offsets, which a library does not have."""
    return [line for count in counts for line in (
        f"if (status == 0 && {count} > {NARROW_ELEMENTS})",
        "    status = refuse(s, STRATA_OTHER_CODE, \"a buffer of kernel %s has almost 2^31 "
        f'elements or more", {quoted(kernel)});')]
