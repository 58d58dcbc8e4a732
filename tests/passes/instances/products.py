"""Instances of the patterns of rules about products: their types, groups, parts, and masks."""

from __future__ import annotations

from collections.abc import Callable

from tests.passes.instances.writing import Draw, Instance, function, literal, scalar, type_

CUDA = "cuda sm_90"
CPU = "cpu avx2"
LOOPS = "graph-decompose,graph-to-loop,loop-fuse"
BYTES = ("f8E4M3FN", "f8E5M2")
Maker = Callable[[Draw], Instance]


# ---------------------------------------------------------------------- integers
def _zero(d: Draw, name: str, element: str, dims: str = "") -> tuple[dict[str, str], list[str]]:
    """A zero point: an input, none, one in the middle, or any number."""
    number = d.of("0", "5", *(["128"] if element == "ui8" else ["-3"]))
    if dims or d.integer(0, 1):
        return {name: f"{element}[{dims}]"}, []
    return {}, [scalar(name, number, element)]


def signed_matmul(d: Draw) -> Instance:
    rows, inner, columns = d.of("n", "1", "7"), d.of("m", "2", "5"), d.of("n", "2", "8")
    batch = d.of("", "3", "m")
    left, right = d.of("i8", "ui8"), d.of("i8", "ui8")
    shape, result = [*batch, rows, inner], type_("i32", [*batch, rows, columns])
    (y, own), (z, other) = _zero(d, "y", left), _zero(d, "z", right)
    inputs = {"x": type_(left, shape), "w": type_(right, [inner, columns]), **y, **z}
    return Instance(function(inputs, [
        *own, *other, f"%r = graph.matmul_integer %x, %w, %y, %z : {result}"], "r", result),
        "graph-sign-products", target=CUDA)


def signed_conv(d: Draw) -> Instance:
    """Zero points are numbers, or one per filter."""
    group, inner, each = d.integer(1, 3), d.integer(1, 3), d.integer(2, 3)
    outputs = group * each
    left, right = d.of("i8", "ui8"), d.of("i8", "ui8")
    result = type_("i32", ["n", outputs, "m + 1"])
    y, own = _zero(d, "y", left)
    z, other = _zero(d, "z", right, d.of("", str(outputs)))
    inputs = {"x": type_(left, ["n", group * inner, "m"]),
              "w": type_(right, [outputs, inner, 3]), **y, **z}
    return Instance(function(inputs, [
        *own, *other, f"%r = graph.conv_integer %x, %w, %y, %z "
        f"{{pads = [1, 2], group = {group}}} : {result}"], "r", result),
        "graph-sign-products", target=CUDA)


def repeat_scales(d: Draw) -> Instance:
    """Codes in blocks of a row, with scales or zero points of blocks, of rows or of the tensor."""
    code, rows, columns = d.of("i8", "ui8", "i16"), d.integer(1, 2), d.integer(1, 5)
    count, size = d.integer(1, 4), d.integer(1, 4)
    blocks = type_("f32", [columns, count, size])
    scale, zero = (d.of("", "1, 1", f"{columns}, 1, 1", f"{columns}, {count}, 1") for _ in "sz")
    result = type_("f32", [rows, columns])
    return Instance(function({
        "x": type_("f32", [rows, count * size]), "w": type_(code, [columns, count * size]),
        "s": f"f32[{scale}]", "z": f"f32[{zero}]"}, [
            f"%c = graph.cast %w {{to = f32}} : {type_('f32', [columns, count * size])}",
            f"%b = graph.reshape %c {{shape = [{columns}, {count}, {size}]}} : {blocks}",
            f"%d = graph.{d.of('sub', 'add')} %b, %z : {blocks}",
            f"%e = graph.{d.of('mul %d, %s', 'mul %s, %d')} : {blocks}",
            f"%f = graph.reshape %e {{shape = [{columns}, {count * size}]}} : "
            f"{type_('f32', [columns, count * size])}",
            f"%t = graph.transpose %f {{perm = [1, 0]}} : "
            f"{type_('f32', [count * size, columns])}",
            f"%y = graph.matmul %x, %t : {result}"],
        "y", result), "graph-delay-scales", target=CPU)


# ---------------------------------------------------------------------- narrow floats
def multiply_bytes(d: Draw) -> Instance:
    """Scales of the tensor, of rows or of columns, or none; multiplied or divided by."""
    element, wide = d.of(*BYTES), d.of("f32", "bf16")
    rows, inner, columns = d.of("n", "3"), d.of("4", "40"), d.of("7", "5")
    left, right = type_(wide, [rows, inner]), type_(wide, [inner, columns])
    scale, other = d.of("", f"{rows}, 1", "1, 1"), d.of("", columns, f"1, {columns}")
    result = type_(wide, [rows, columns])
    return Instance(function({
        "x": type_(element, [rows, inner]), "w": type_(element, [inner, columns]),
        "s": f"{wide}[{scale}]", "t": f"{wide}[{other}]"}, [
            f"%a = graph.cast %x {{to = {wide}}} : {left}",
            f"%b = graph.cast %w {{to = {wide}}} : {right}",
            f"%c = graph.{d.of('mul %a, %s', 'mul %s, %a', 'div %a, %s')} : {left}",
            f"%e = graph.mul %b, %t : {right}",
            f"%y = graph.matmul {d.of('%a', '%c')}, {d.of('%b', '%e')} : {result}"],
        "y", result), "graph-delay-scales", 5e-2, CUDA)


def narrow(d: Draw) -> Instance:
    element = d.of("f16", "bf16", *BYTES)
    rows, inner, columns = d.of("n", "3", "7"), d.of("16", "40"), d.of("5", "8")
    left, right = type_("f32", [rows, inner]), type_("f32", [inner, columns])
    result = type_("f32", [rows, columns])
    return Instance(function({
        "x": type_(element, [rows, inner]), "w": type_(element, [inner, columns])}, [
            f"%a = graph.cast %x {{to = f32}} : {left}",
            f"%b = graph.cast %w {{to = f32}} : {right}",
            f"%y = graph.matmul %a, %b : {result}"], "y", result),
        f"{LOOPS},loop-narrow-factors", 1e-4, CUDA)


# ---------------------------------------------------------------------- groups and parts
def join_groups(d: Draw) -> Instance:
    element = d.of("f32", "f16")
    group, inner, each = d.source.choice(
        [(8, 4, 1), (8, 4, 4)] + [(4, 4, 4), (8, 2, 4)] * (element == "f32"))
    shape = [group * each, inner, 2]
    numbers = [d.number() for _ in range(group * each * inner * 2)]
    bias = d.of("", ", %b")
    result = type_(element, ["n", group * each, "m"])
    return Instance(function({
        "x": type_(element, ["n", group * inner, "m + 1"]), "b": type_(element, [group * each])}, [
            literal("w", numbers, type_(element, shape)),
            f"%y = graph.conv %x, %w{bias} {{group = {group}}} : {result}"], "y", result),
        "graph-join-groups", 1e-2 if element == "f16" else 1e-5, CUDA)


def tile_groups(d: Draw) -> Instance:
    """Groups of any lengths, of which some are empty; the last may end before the rows do."""
    rows, groups, inner = d.integer(3, 40), d.integer(1, 6), d.integer(1, 16)
    ends = sorted(d.integer(0, rows) for _ in range(groups))
    result = type_("f32", [rows, 5])
    return Instance(function({
        "x": type_("f32", [rows, inner]), "w": type_("f32", [groups, inner, 5])}, [
            literal("e", ends, type_("i32", [groups])),
            f"%y = graph.grouped_matmul %x, %w, %e : {result}"], "y", result),
        "graph-tile-groups", 1e-5, CUDA)


def split(d: Draw) -> Instance:
    """A reduction, or a product, whose results alone are few programs."""
    if d.integer(0, 2) == 0:
        inner, columns = d.of("2048", "4096"), d.of("64", "128")
        result = type_("f32", [1, columns])
        return Instance(function({"x": type_("f32", [1, inner]), "w": type_(
            "f32", [inner, columns])}, [f"%y = graph.matmul %x, %w : {result}"], "y", result),
            f"{LOOPS},loop-split-products", 2e-3, CUDA)
    shape, axes, left = d.source.choice([
        (["4", "32", "512"], [0, 1, 2], []), (["n", "m", "64"], [0, 1, 2], []),
        (["37675"], [0], []),
        (["3", "65536"], [1], ["3"]), (["2048", "64"], [0], ["64"])])
    element, kind = d.of("f32", "i32"), d.of("max", "min", "sum")
    result = type_(element, left)
    return Instance(function({"x": type_(element, shape)}, [
        f"%y = graph.reduce_{kind} %x {{axes = {axes}, keepdims = false}} : {result}"],
        "y", result), f"{LOOPS},loop-split-reductions", 2e-3, CUDA)


# ---------------------------------------------------------------------- masks
def nothing_seen(d: Draw) -> Instance:
    """A bias that hides places, of some rows all."""
    rows, columns, batch = d.of("n", "3"), d.of("m", "2", "5"), d.long(1)
    bias, scores = type_("f32", [rows, columns]), type_("f32", [*batch, rows, columns])
    row, truth = type_("f32", [rows, 1]), type_("i1", [rows, columns])
    values, result = type_("f32", [*batch, columns, 4]), type_("f32", [*batch, rows, 4])
    return Instance(function({"s": scores, "r": bias, "c": truth, "v": values}, [
        scalar("least", "-inf", "f32"), scalar("zero", "0.0", "f32"),
        f"%b = graph.where %c, %least, %r : {bias}",
        f"%t = graph.add {d.of('%s, %b', '%b, %s')} : {scores}",
        f"%w = graph.softmax %t {{axis = 2}} : {scores}",
        f"%m = graph.reduce_max %b {{axes = [1], keepdims = true}} : {row}",
        f"%none = graph.equal {d.of('%m, %least', '%least, %m')} : i1[{rows}, 1]",
        f"%k = graph.where %none, %zero, %w : {scores}",
        f"%y = graph.matmul %k, %v : {result}"], "y", result), tolerance=1e-6)


# ---------------------------------------------------------------------- rounding on purpose
NARROW = {"passes": "graph-narrow-products", "target": "cuda sm_90"}


def narrow_matmul(d: Draw) -> Instance:
    a, b, c = d.long(3)
    t = type_("f32", [a, c])
    return Instance(function({"x": type_("f32", [a, b]), "z": type_("f32", [b, c])}, [
        f"%y = graph.matmul %x, %z : {t}"], "y", t), tolerance=0.1,
        precision=d.of("bf16", "fp16"), **NARROW)


def narrow_conv(d: Draw) -> Instance:
    channels, filters = d.source.choice((16, 32)), d.integer(1, 4)
    t, bias = type_("f32", ["n", filters, "h"]), d.integer(0, 1)
    inputs = {"x": type_("f32", ["n", channels, "h"]), "w": type_("f32", [filters, channels, 1]),
              **({"b": type_("f32", [filters])} if bias else {})}
    return Instance(function(inputs, [
        f"%y = graph.conv %x, %w{', %b' if bias else ''} : {t}"], "y", t), tolerance=0.3,
        precision=d.of("bf16", "fp16"), **NARROW)


def narrow_filter_gradient(d: Draw) -> Instance:
    channels, filters, taps = d.integer(1, 8), d.integer(1, 8), d.integer(1, 3)
    t = type_("f32", [filters, channels, taps])
    inputs = {"x": type_("f32", [2, channels, taps + 4]), "y": type_("f32", [2, filters, 5])}
    return Instance(function(inputs, [
        f"%g = graph.conv_filter_gradient %x, %y {{kernel = [{taps}]}} : {t}"], "g", t),
        tolerance=0.1, precision=d.of("bf16", "fp16"), **NARROW)


def scaled_matmul(d: Draw) -> Instance:
    inner, columns = d.source.choice((64, 96)), d.source.choice((64, 80))
    t = type_("f32", ["n", columns])
    return Instance(function({"x": type_("f32", ["n", inner])}, [
        literal("w", [d.number() for _ in range(inner * columns)],
                type_("f32", [inner, columns])),
        f"%y = graph.matmul %x, %w : {t}"], "y", t), tolerance=4.0, precision="fp8", **NARROW)


INSTANCES: dict[str, Maker] = {make.__name__: make for make in (
    signed_matmul, signed_conv, repeat_scales, multiply_bytes, narrow, join_groups, tile_groups,
    split, nothing_seen, narrow_matmul, narrow_conv, narrow_filter_gradient, scaled_matmul)}
