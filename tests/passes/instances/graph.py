"""Instances of the patterns of graph-simplify's rules."""

from __future__ import annotations

from collections.abc import Callable

from tests.passes.instances.writing import (
    FLOATS,
    INTEGERS,
    Draw,
    Instance,
    function,
    literal,
    scalar,
    type_,
)

Maker = Callable[[Draw], Instance]


def _neutral(op: str, floats: str | None, integers: str | None, sides: bool = True) -> Maker:
    """x op number == x, the number a scalar or as many."""
    def make(d: Draw) -> Instance:
        kinds = [*(FLOATS if floats else ()), *(INTEGERS if integers else ())]
        element, dims = d.of(*kinds), d.dims()
        number = floats if element in FLOATS else integers
        assert number is not None
        swap = sides and d.integer(0, 1)
        operands = "%c, %x" if swap else "%x, %c"
        t = type_(element, dims)
        return Instance(function({"x": t}, [
            scalar("c", number, element), f"%y = graph.{op} {operands} : {t}"], "y", t))
    return make


def _unary_pair(op: str, elements: tuple[str, ...]) -> Maker:
    def make(d: Draw) -> Instance:
        t = type_(d.of(*elements), d.dims())
        return Instance(function({"x": t}, [
            f"%a = graph.{op} %x : {t}", f"%y = graph.{op} %a : {t}"], "y", t))
    return make


def same_operands(d: Draw) -> Instance:
    op = d.of("max", "min", "and", "or")
    element = d.of(*FLOATS, *INTEGERS) if op in ("max", "min") else d.of("i1", *INTEGERS)
    t = type_(element, d.dims())
    return Instance(function({"x": t}, [f"%y = graph.{op} %x, %x : {t}"], "y", t))


def boolean_neutral(op: str, truth: str, integer: str) -> Maker:
    def make(d: Draw) -> Instance:
        element = d.of("i1", *INTEGERS)
        t = type_(element, d.dims())
        number = truth if element == "i1" else integer
        return Instance(function({"x": t}, [
            scalar("c", number, element), f"%y = graph.{op} %x, %c : {t}"], "y", t))
    return make


def divide_by_power_of_two(d: Draw) -> Instance:
    element, dims = d.of(*FLOATS), d.dims()
    t = type_(element, dims)
    number = d.of("2.0", "0.25", "-8.0", "1024.0")
    return Instance(function({"x": t}, [
        scalar("c", number, element), f"%y = graph.div %x, %c : {t}"], "y", t))


def simple_power(d: Draw) -> Instance:
    element = d.of("f32", "f64", "i32", "i64")
    t = type_(element, d.dims())
    number = d.of("1", "2", "3") if element[0] == "i" else d.of("1.0", "2.0", "3.0", "-1.0")
    tolerance = 1e-6 if element[0] == "f" else 0.0
    return Instance(function({"x": t}, [
        scalar("c", number, element), f"%y = graph.pow %x, %c : {t}"], "y", t),
        tolerance=tolerance)


def decided_choice(d: Draw) -> Instance:
    t = type_(d.of(*FLOATS, *INTEGERS), d.dims())
    if d.integer(0, 2) == 0:
        condition = t[t.index("["):]
        return Instance(function({"c": f"i1{condition}", "x": t}, [
            f"%y = graph.where %c, %x, %x : {t}"], "y", t))
    return Instance(function({"x": t, "z": t}, [
        scalar("c", d.of("true", "false"), "i1"), f"%y = graph.where %c, %x, %z : {t}"], "y", t))


def negated_choice(d: Draw) -> Instance:
    dims = d.dims()
    t, c = type_(d.of(*FLOATS, *INTEGERS), dims), type_("i1", dims)
    return Instance(function({"c": c, "x": t, "z": t}, [
        f"%a = graph.not %c : {c}", f"%y = graph.where %a, %x, %z : {t}"], "y", t))


def cast_to_same(d: Draw) -> Instance:
    element = d.of(*FLOATS, *INTEGERS, "i1")
    t = type_(element, d.dims())
    return Instance(function({"x": t}, [f"%y = graph.cast %x {{to = {element}}} : {t}"], "y", t))


def cast_of_lossless_cast(d: Draw) -> Instance:
    first, wide = d.of("f16 f32", "bf16 f32", "f32 f64", "i8 i32", "i8 f32", "i16 i64", "i1 i32",
                       "ui8 i32", "i16 f32").split()
    last = d.of(*(e for e in ("f32", "f64", "i64", "i32") if e != wide))
    dims = d.dims()
    a, b, c = (type_(e, dims) for e in (first, wide, last))
    return Instance(function({"x": a}, [
        f"%a = graph.cast %x {{to = {wide}}} : {b}",
        f"%y = graph.cast %a {{to = {last}}} : {c}"], "y", c))


def broadcast_operand(d: Draw) -> Instance:
    element, dims = d.of(*FLOATS, *INTEGERS), d.long(3)
    slim = [dim if d.integer(0, 1) else "1" for dim in dims[1:]]
    wide, t = type_(element, dims), type_(element, slim)
    op = d.of("add", "mul", "sub", "max")
    operands = d.of("%a, %z", "%z, %a")
    shape = ", ".join(dims)
    return Instance(function({"x": t, "z": wide}, [
        f"%a = graph.broadcast %x {{shape = [{shape}]}} : {wide}",
        f"%y = graph.{op} {operands} : {wide}"], "y", wide))


# ---------------------------------------------------------------------- movement
def same_type(d: Draw) -> Instance:
    t = type_(d.of(*FLOATS, *INTEGERS), dims := d.dims(1))
    shape, op = ", ".join(dims), d.of("reshape", "broadcast")
    return Instance(function({"x": t}, [f"%y = graph.{op} %x {{shape = [{shape}]}} : {t}"],
                             "y", t))


def reshape_of_reshape(d: Draw) -> Instance:
    element, (a, b, c) = d.of(*FLOATS, *INTEGERS), d.long(3)
    first, second, third = [a, b, c], [f"{a}*{b}", c], [a, f"{b}*{c}"]
    types = [type_(element, s) for s in (first, second, third)]
    return Instance(function({"x": types[0]}, [
        f"%a = graph.reshape %x {{shape = [{', '.join(second)}]}} : {types[1]}",
        f"%y = graph.reshape %a {{shape = [{', '.join(third)}]}} : {types[2]}"], "y", types[2]))


def _permutation(d: Draw, count: int) -> list[int]:
    return d.source.sample(range(count), count)


def transpose_of_transpose(d: Draw) -> Instance:
    element, dims = d.of(*FLOATS, *INTEGERS), d.long(4)
    lines, types = [], [type_(element, dims)]
    for name, source in (("a", "x"), ("y", "a")):
        perm = _permutation(d, 4)
        dims = [dims[p] for p in perm]
        types.append(type_(element, dims))
        lines.append(f"%{name} = graph.transpose %{source} {{perm = {perm}}} : {types[-1]}")
    return Instance(function({"x": types[0]}, lines, "y", types[-1]))


def transpose_in_order(d: Draw) -> Instance:
    element, (a, b) = d.of(*FLOATS, *INTEGERS), d.long(2)
    dims, perm = d.source.choice([
        (["1", a, b], [1, 0, 2]), (["1", a, b], [1, 2, 0]), ([a, "1", b], [0, 2, 1]),
        ([a, b], [0, 1])])
    wanted = [dims[p] for p in perm]
    result = type_(element, wanted)
    return Instance(function({"x": type_(element, dims)}, [
        f"%y = graph.transpose %x {{perm = {perm}}} : {result}"], "y", result))


def _slice(name: str, source: str, starts: list[str], sizes: list[str], steps: list[int], t: str
           ) -> str:
    return (f"%{name} = graph.slice %{source} {{starts = [{', '.join(starts)}], "
            f"sizes = [{', '.join(sizes)}], steps = {steps}}} : {t}")


def whole_slice(d: Draw) -> Instance:
    t = type_(d.of(*FLOATS, *INTEGERS), dims := d.dims(1))
    return Instance(function({"x": t}, [
        _slice("y", "x", ["0"] * len(dims), dims, [1] * len(dims), t)], "y", t))


def slice_of_slice(d: Draw) -> Instance:
    element = d.of(*FLOATS, *INTEGERS)
    first, second = d.integer(1, 3), d.source.choice((1, 2, -1))
    a, b = d.integer(0, 3), d.integer(0, 2)
    inner, outer = 9, 3
    start = b if second > 0 else b + 2
    x, t, u = (type_(element, ["n", k]) for k in (40, inner, outer))
    return Instance(function({"x": x}, [
        _slice("a", "x", ["0", str(a)], ["n", str(inner)], [1, first], t),
        _slice("y", "a", ["0", str(start)], ["n", str(outer)], [1, second], u)], "y", u))


def slice_of_concat(d: Draw) -> Instance:
    element, parts = d.of(*FLOATS, *INTEGERS), [d.integer(2, 5) for _ in range(3)]
    which = d.integer(0, 2)
    start = sum(parts[:which]) + (low := d.integer(0, 1))
    size = d.integer(1, parts[which] - low)
    types = [type_(element, ["n", p]) for p in parts]
    whole, t = type_(element, ["n", sum(parts)]), type_(element, ["n", size])
    return Instance(function(dict(zip("uvw", types, strict=True)), [
        f"%a = graph.concat %u, %v, %w {{axis = 1}} : {whole}",
        _slice("y", "a", ["0", str(start)], ["n", str(size)], [1, 1], t)], "y", t))


def concat_of_one(d: Draw) -> Instance:
    t = type_(d.of(*FLOATS, *INTEGERS), dims := d.dims(1))
    axis = d.integer(0, len(dims) - 1)
    return Instance(function({"x": t}, [f"%y = graph.concat %x {{axis = {axis}}} : {t}"], "y", t))


def concat_of_nothing(d: Draw) -> Instance:
    element, (a, b) = d.of(*FLOATS, *INTEGERS), d.long(2)
    x, none = type_(element, [a, b]), type_(element, [a, 0])
    operands = d.of("%x, %e", "%e, %x", "%e, %x, %e")
    return Instance(function({"x": x, "e": none}, [
        f"%y = graph.concat {operands} {{axis = 1}} : {x}"], "y", x))


def concat_of_concat(d: Draw) -> Instance:
    element, n = d.of(*FLOATS, *INTEGERS), d.of("n", "3")
    x, z = type_(element, [n, 2]), type_(element, [n, 5])
    inner, whole = type_(element, [n, 7]), type_(element, [n, 9])
    operands = d.of("%a, %x", "%x, %a")
    return Instance(function({"x": x, "z": z}, [
        f"%a = graph.concat %x, %z {{axis = 1}} : {inner}",
        f"%y = graph.concat {operands} {{axis = 1}} : {whole}"], "y", whole))


def gather_at_constant(d: Draw) -> Instance:
    element, size = d.of(*FLOATS, *INTEGERS), d.integer(3, 7)
    position = d.integer(-size, size - 1)
    shape = d.source.choice(([], [1], [1, 1]))
    x, t = type_(element, ["n", size]), type_(element, ["n", *shape])
    return Instance(function({"x": x}, [
        literal("k", [position], type_("i64", shape)),
        f"%y = graph.gather %x, %k {{axis = 1}} : {t}"], "y", t))


def reduction_of_one(d: Draw) -> Instance:
    element, (a, b) = d.of("f32", "f64", "i32", "i64"), d.long(2)
    op = d.of("sum", "max", "min", "mean", "prod")
    keep = d.integer(0, 1)
    t = type_(element, [a, *(["1"] * keep), b])
    told = "true" if keep else "false"
    return Instance(function({"x": type_(element, [a, "1", b])}, [
        f"%y = graph.reduce_{op} %x {{axes = [1], keepdims = {told}}} : {t}"], "y", t))


# ---------------------------------------------------------------------- convolutions
def _conv(d: Draw) -> tuple[list[str], str, str]:
    """Lines up to `%a`, the type of x and that of the result."""
    element, channels, filters = d.of("f32", "f64"), d.integer(1, 3), d.integer(1, 3)
    weights = [d.number() for _ in range(filters * channels * 3)]
    lines = [literal("w", weights, type_(element, [filters, channels, 3]))]
    bias = d.integer(0, 1)
    if bias:
        lines.append(literal("b", [d.number() for _ in range(filters)], type_(element, [filters])))
    t = type_(element, ["n", filters, "h"])
    lines.append(f"%a = graph.conv %x, %w{', %b' if bias else ''} {{pads = [1, 1]}} : {t}")
    return lines, type_(element, ["n", channels, "h"]), t


def _after_conv(op: str, swap: bool) -> Maker:
    def make(d: Draw) -> Instance:
        lines, x, t = _conv(d)
        element, filters = t[:3], int(t.split(", ")[1])
        per_channel = d.integer(0, 1)
        count, shape = (filters, [filters, 1]) if per_channel else (1, [])
        numbers = [d.of("3.0", "-1.25", "0.75") for _ in range(count)]  # no powers of two
        lines.append(literal("c", numbers, type_(element, shape)))
        operands = "%c, %a" if swap and d.integer(0, 1) else "%a, %c"
        lines.append(f"%y = graph.{op} {operands} : {t}")
        return Instance(function({"x": x}, lines, "y", t), tolerance=1e-5)
    return make


def batch_norm_of_conv(d: Draw) -> Instance:
    lines, x, t = _conv(d)
    element, filters = t[:3], int(t.split(", ")[1])
    for name in ("scale", "bias", "mean", "variance"):
        numbers = [d.of("0.5", "1.25", "3.0") for _ in range(filters)]
        lines.append(literal(name, numbers, type_(element, [filters])))
    lines.append("%y = graph.batch_norm %a, %scale, %bias, %mean, %variance "
                 f"{{epsilon = 0.01}} : {t}")
    return Instance(function({"x": x}, lines, "y", t), tolerance=1e-5)


def conv_of_pad(d: Draw) -> Instance:
    element, channels = d.of("f32", "f64"), d.integer(1, 3)
    low, high = d.integer(0, 2), d.integer(0, 2)
    padded = type_(element, ["n", channels, f"h + {low + high}"])
    weights = [d.number() for _ in range(2 * channels)]
    t = type_(element, ["n", 2, f"h + {low + high}"])
    return Instance(function({"x": type_(element, ["n", channels, "h"])}, [
        literal("w", weights, type_(element, [2, channels, 1])),
        f"%a = graph.pad %x {{low = [0, 0, {low}], high = [0, 0, {high}], mode = \"constant\", "
        f"value = 0.0}} : {padded}",
        f"%y = graph.conv %a, %w : {t}"], "y", t), tolerance=1e-5)


# ---------------------------------------------------------------------- repeated operands
def once(d: Draw) -> Instance:
    rows, columns = d.integer(2, 4), d.integer(2, 5)
    t, op = type_("i1", [rows, columns]), d.of("and", "or", "equal", "less_equal", "greater")
    if op in ("and", "or"):
        return Instance(function({"x": type_("i1", [1, columns]), "z": type_("i1", [rows, 1])}, [
            f"%a = graph.broadcast %x {{shape = [{rows}, {columns}]}} : {t}",
            f"%b = graph.broadcast %z {{shape = [{rows}, {columns}]}} : {t}",
            f"%y = graph.{op} %a, %b : {t}"], "y", t))
    row, kind = [d.integer(-2, 2) for _ in range(columns)], d.of("i32", "i64")
    return Instance(function({"x": type_(kind, [1, 1])}, [
        literal("c", row * rows, type_(kind, [rows, columns])),
        f"%y = graph.{op} %c, %x : {t}"], "y", t))


def choose_once(d: Draw) -> Instance:
    rows, columns = d.integer(2, 4), d.integer(2, 5)
    t = type_(d.of("f32", "i64"), [rows, columns])
    return Instance(function({"c": type_("i1", [1, columns]), "x": t, "z": t}, [
        f"%a = graph.broadcast %c {{shape = [{rows}, {columns}]}} : i1[{rows}, {columns}]",
        f"%y = graph.where %a, %x, %z : {t}"], "y", t))


def dequantize_of_quantized(d: Draw) -> Instance:
    dims, element = d.dims(1), d.of("ui8", "i8", "i16")
    t, q = type_("f32", dims), type_(element, dims)
    zero = d.integer(0, 5)
    return Instance(function({"x": t}, [
        scalar("s", d.of("0.25", "0.5"), "f32"), scalar("z", str(zero), element),
        f"%a = graph.quantize_linear %x, %s, %z {{to = {element}}} : {q}",
        f"%y = graph.dequantize_linear %a, %s, %z {{to = f32}} : {t}"], "y", t),
        passes="graph-quantize-contractions", tolerance=1e-6)


def alone(d: Draw) -> Instance:
    """A collective operation of one rank."""
    t = type_("f32", d.dims(1))
    kind = d.of("all_reduce %x {reduce = \"sum\", ", "all_gather %x {",
                "broadcast_ranks %x {root = 0, ")
    return Instance(function({"x": t}, [
        f'%y = graph.{kind}group = #strata.group<"g", [[0]]>}} : {t}'], "y", t))


_PAIR = 'group = #strata.group<"g", [[0, 1]]>'


def part_of_gathered(d: Draw) -> Instance:
    t, whole = type_("f32", ["n", 3]), type_("f32", ["2*n", 3])
    return Instance(function({"x": t}, [
        f"%a = graph.all_gather %x {{{_PAIR}}} : {whole}",
        f"%y = graph.shard %a {{{_PAIR}}} : {t}"], "y", t))


def part_of_sum(d: Draw) -> Instance:
    """The sum's first dim is divided, or another one, which is moved to the front."""
    reduction, moved = d.of("sum", "max", "avg"), d.of(True, False)
    given = type_("f32", [3, "2*n"] if moved else ["2*n", 3])
    whole, part = type_("f32", ["2*n", 3]), type_("f32", ["n", 3])
    turn = [f"%t = graph.transpose %a {{perm = [1, 0]}} : {whole}"] if moved else []
    return Instance(function({"x": given}, [
        f'%a = graph.all_reduce %x {{reduce = "{reduction}", {_PAIR}}} : {given}', *turn,
        f"%y = graph.shard %{'t' if moved else 'a'} {{{_PAIR}}} : {part}"], "y", part))


INSTANCES: dict[str, Maker] = {
    "add_zero": _neutral("add", "-0.0", "0"), "subtract_zero": _neutral("sub", "0.0", "0", False),
    "multiply_by_one": _neutral("mul", "1.0", "1"),
    "divide_by_one": _neutral("div", "1.0", "1", False),
    "max_with_lowest": _neutral("max", "-inf", None),
    "min_with_highest": _neutral("min", "inf", None),
    "and_true": boolean_neutral("and", "true", "-1"),
    "or_false": boolean_neutral("or", "false", "0"),
    "double_negation": lambda d: (_unary_pair("neg", (*FLOATS, *INTEGERS)) if d.integer(0, 1)
                                  else _unary_pair("not", ("i1",)))(d),
    "conv_times_constant": _after_conv("mul", True),
    "conv_over_constant": _after_conv("div", False),
    "conv_plus_constant": _after_conv("add", True),
    "conv_minus_constant": _after_conv("sub", False),
    **{make.__name__: make for make in (
        once, choose_once, same_operands, divide_by_power_of_two, simple_power,
        decided_choice, negated_choice,
        cast_to_same, cast_of_lossless_cast, broadcast_operand, same_type, reshape_of_reshape,
        transpose_of_transpose, transpose_in_order, whole_slice,
        slice_of_slice, slice_of_concat,
        concat_of_one, concat_of_nothing, concat_of_concat, gather_at_constant, reduction_of_one,
        batch_norm_of_conv, conv_of_pad, dequantize_of_quantized, alone,
        part_of_gathered, part_of_sum)},
}
