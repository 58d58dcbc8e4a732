"""Instances of the patterns of quantized models: integers that are taken for floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.passes.instances.writing import Draw, Instance, function, literal, scalar, type_

PASSES = "graph-quantize-contractions"
SCALES = ("0.5", "0.3", "0.25", "2.0")
Maker = Callable[[Draw], Instance]


def _floats(d: Draw, name: str, source: str, element: str, dims: Sequence[object]) -> list[str]:
    """`name` = (source - zero) * scale."""
    zero = str(d.integer(0, 3))
    return [scalar(f"s{name}", d.of(*SCALES), "f32"), scalar(f"z{name}", zero, element),
            f"%{name} = graph.dequantize_linear %{source}, %s{name}, %z{name} {{to = f32}} : "
            f"{type_('f32', dims)}"]


def _moved(d: Draw, dims: Sequence[str], move: str, after: Sequence[str]) -> Instance:
    """Integers, dequantized, moved, and quantized again by the same numbers."""
    element = d.of("i8", "ui8")
    result = type_(element, after)
    return Instance(function({"x": type_(element, dims)}, [
        *_floats(d, "a", "x", element, dims), f"%b = graph.{move} : {type_('f32', after)}",
        f"%y = graph.quantize_linear %b, %sa, %za {{to = {element}}} : {result}"], "y", result),
        PASSES)


def transpose_of_dequantized(d: Draw) -> Instance:
    a, b, c = d.long(3)
    return _moved(d, [a, b, c], "transpose %a {perm = [2, 0, 1]}", [c, a, b])


def reshape_of_dequantized(d: Draw) -> Instance:
    a, b = d.long(2)
    return _moved(d, [a, b, "6"], f"reshape %a {{shape = [{a}, {b}, 2, 3]}}", [a, b, "2", "3"])


def quantize_of_dequantized(d: Draw) -> Instance:
    a, b = d.long(2)
    return _moved(d, [a, b], "transpose %a {perm = [1, 0]}", [b, a])


def matmul_of_dequantized(d: Draw) -> Instance:
    rows, inner, columns = d.of("n", "3", "7"), d.of("2", "4", "5"), d.of("1", "3", "8")
    first, second = d.of("i8", "ui8"), d.of("i8", "ui8")
    result = type_("f32", [rows, columns])
    return Instance(function(
        {"x": type_(first, [rows, inner]), "w": type_(second, [inner, columns])}, [
            *_floats(d, "a", "x", first, [rows, inner]),
            *_floats(d, "b", "w", second, [inner, columns]),
            f"%y = graph.matmul %a, %b : {result}"], "y", result), PASSES, 1e-5)


def concat_of_dequantized(d: Draw) -> Instance:
    element, (a, b) = d.of("i8", "ui8"), d.long(2)
    parts = d.integer(2, 4)
    wide = [a, f"{parts}*{b}"]
    numbers = _floats(d, "a", "x", element, [a, b])
    scale, zero, first = numbers
    others = [first.replace("%a =", f"%b{k} =").replace("%x,", f"%x{k},") for k in range(1, parts)]
    names = ", ".join(["%a", *(f"%b{k}" for k in range(1, parts))])
    t = type_("f32", wide)
    inputs = {"x": type_(element, [a, b]), **{
        f"x{k}": type_(element, [a, b]) for k in range(1, parts)}}
    return Instance(function(inputs, [
        scale, zero, first, *others, f"%y = graph.concat {names} {{axis = 1}} : {t}"], "y", t),
        PASSES)


def part_of_dequantized(d: Draw) -> Instance:
    element, (a, b) = d.of("i8", "ui8"), d.long(2)
    move, size = d.source.choice([
        (f"slice %a {{starts = [0, 0, 1], sizes = [{a}, {b}, 4], steps = [1, 1, 1]}}", "4"),
        (f"slice %a {{starts = [0, 0, 0], sizes = [{a}, {b}, 3], steps = [1, 1, 2]}}", "3"),
        ("gather %a, %i {axis = 2}", "2"), ("max_pool %a {kernel = [2], strides = [2]}", "3")])
    t = type_("f32", [a, b, size])
    return Instance(function({"x": type_(element, [a, b, "6"])}, [
        *_floats(d, "a", "x", element, [a, b, "6"]),
        f"%i = graph.constant {{value = literal[{d.integer(0, 5)}, {d.integer(0, 5)}]}} : i64[2]",
        f"%y = graph.{move} : {t}"], "y", t), PASSES)


def conv_of_dequantized(d: Draw) -> Instance:
    """One scale, or one per filter; with a bias or without; in groups."""
    group, inner, each = d.integer(1, 2), d.integer(1, 3), d.integer(1, 3)
    outputs = group * each
    first, second = d.of("i8", "ui8"), d.of("i8", "ui8")
    shape, filters = ["n", group * inner, "m"], [outputs, inner, 3]
    scales = [d.of(*SCALES) for _ in range(outputs)]
    weights = _floats(d, "b", "w", second, filters) if d.integer(0, 1) else [
        literal("sb", scales, type_("f32", [outputs])),
        f"%b = graph.dequantize_linear %w, %sb {{axis = 0, to = f32}} : {type_('f32', filters)}"]
    t = type_("f32", ["n", outputs, "m"])
    inputs = {"x": type_(first, shape), "w": type_(second, filters),
              "c": type_("f32", [outputs])}
    bias = d.of("", ", %c")
    return Instance(function(inputs, [
        *_floats(d, "a", "x", first, shape), *weights,
        f"%y = graph.conv %a, %b{bias} {{pads = [1, 1], group = {group}}} : {t}"], "y", t),
        PASSES, 1e-4)


def _sum(name: str, source: str, scale: str, dims: Sequence[object]) -> str:
    return f"%{name} = graph.dequantize_linear %{source}, %{scale} {{to = f32}} : " + (
        type_("f32", dims))


def add_to_sum(d: Draw) -> Instance:
    """Sums of one scale, of which one may be a row."""
    dims = d.long(3)
    row = dims[d.integer(0, 2):]
    t = type_("f32", dims)
    return Instance(function({"x": type_("i32", dims), "z": type_("i32", row)}, [
        scalar("s", d.of(*SCALES), "f32"), _sum("a", "x", "s", dims), _sum("b", "z", "s", row),
        f"%y = graph.add {d.of('%a, %b', '%b, %a')} : {t}"], "y", t), PASSES, 1e-6)


def relu_of_sum(d: Draw) -> Instance:
    dims = d.dims()
    t = type_("f32", dims)
    return Instance(function({"x": type_("i32", dims)}, [
        scalar("s", d.of(*SCALES), "f32"), _sum("a", "x", "s", dims),
        f"%y = graph.relu %a : {t}"], "y", t), PASSES)


def quantize_of_sum(d: Draw) -> Instance:
    """At scales that are powers of two: no other product is rounded."""
    dims, element = d.dims(), d.of("i8", "ui8")
    t = type_(element, dims)
    return Instance(function({"x": type_("i32", dims)}, [
        scalar("s", d.of("0.5", "0.25", "2.0"), "f32"), _sum("a", "x", "s", dims),
        scalar("t", d.of("0.5", "4.0", "1.0"), "f32"), scalar("z", str(d.integer(0, 3)), element),
        f"%y = graph.quantize_linear %a, %t, %z {{to = {element}}} : {t}"], "y", t), PASSES)


def quantize_by_reciprocal(d: Draw) -> Instance:
    """By powers of two, whose reciprocals are exact, of what depends on a product."""
    (m, k, n), element = d.long(3), d.of("i8", "ui8")
    t, wide = type_(element, [m, n]), type_("f32", [m, n])
    return Instance(function({"x": type_("f32", [m, k]), "w": type_("f32", [k, n])}, [
        f"%p = graph.matmul %x, %w : {wide}", scalar("t", d.of("0.5", "0.125", "4.0"), "f32"),
        scalar("z", str(d.integer(0, 3)), element),
        f"%y = graph.quantize_linear %p, %t, %z {{to = {element}}} : {t}"], "y", t), PASSES)


def reshape_of_cast_of_reshape(d: Draw) -> Instance:
    (narrow, wide), (a, b, c) = d.of("bf16 f32", "f32 f64", "i8 i32").split(), d.long(3)
    whole, flat = [a, b, c], [f"{a}*{b}", c]
    return Instance(function({"x": type_(narrow, whole)}, [
        f"%a = graph.reshape %x {{shape = [{', '.join(flat)}]}} : {type_(narrow, flat)}",
        f"%b = graph.cast %a {{to = {wide}}} : {type_(wide, flat)}",
        f"%y = graph.reshape %b {{shape = [{', '.join(whole)}]}} : {(y := type_(wide, whole))}"],
        "y", y), "graph-simplify")


INSTANCES: dict[str, Maker] = {make.__name__: make for make in (
    transpose_of_dequantized, reshape_of_dequantized, quantize_of_dequantized,
    matmul_of_dequantized, concat_of_dequantized, part_of_dequantized, conv_of_dequantized,
    add_to_sum, relu_of_sum, quantize_of_sum, quantize_by_reciprocal,
    reshape_of_cast_of_reshape)}
