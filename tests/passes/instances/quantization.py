"""Instances of the patterns of quantized models: integers that are taken for floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.passes.instances.writing import Draw, Instance, function, scalar, type_

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


INSTANCES: dict[str, Maker] = {make.__name__: make for make in (
    transpose_of_dequantized, reshape_of_dequantized, quantize_of_dequantized,
    matmul_of_dequantized)}
