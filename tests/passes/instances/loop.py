"""Instances of the patterns of loop-level rules: graphs, lowered to nests first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.passes.instances.graph import reshape_of_reshape
from tests.passes.instances.writing import Draw, Instance, function, type_

FUSE = "graph-decompose,graph-to-loop,loop-fuse"
Maker = Callable[[Draw], Instance]


def merge_views(d: Draw) -> Instance:
    return replace(reshape_of_reshape(d), passes=FUSE)


def compose_views(d: Draw) -> Instance:
    """Of elements, or of windows that leave an image, dilated by as much as it is wide."""
    if d.integer(0, 1):
        side, far, channels = d.integer(2, 4), d.integer(1, 4), d.integer(1, 3)
        image, apart = f"[1, {channels}, {side}, {side}]", f"{far}, {far}"
        how = f"pads = [{apart}, {apart}], dilations = [{apart}]"
        t = f"f32[1, 2, {side}, {side}]"
        return Instance(function(
            {"x": f"f32[1, {channels}, 1, {side}, {side}]", "w": f"f32[2, {channels}, 3, 3]"}, [
                f"%a = graph.reshape %x {{shape = {image}}} : f32{image}",
                f"%y = graph.conv %a, %w {{{how}}} : {t}"], "y", t), FUSE, 1e-5)
    a, b, c = d.long(3)
    t, flat = type_("f32", [a, b, c]), type_("f32", [a, f"{b}*{c}"])
    op = d.of("neg", "exp", "relu")
    return Instance(function({"x": flat}, [
        f"%a = graph.reshape %x {{shape = [{a}, {b}, {c}]}} : {t}",
        f"%y = graph.{op} %a : {t}"], "y", t), FUSE, 1e-6)


def inline_producers(d: Draw) -> Instance:
    """A chain of elementwise operations, some of which broadcast."""
    dims = d.long(3)
    t, row = type_("f32", dims), type_("f32", dims[2:])
    lines, last = [], "x"
    for k in range(d.integer(2, 5)):
        kind = d.of("add", "mul", "neg", "tanh")
        operands = f"%{last}, %r" if kind in ("add", "mul") else f"%{last}"
        lines.append(f"%v{k} = graph.{kind} {operands} : {t}")
        last = f"v{k}"
    return Instance(function({"x": t, "r": row}, lines, last, t), FUSE, 1e-6)


def inline_own_producers(d: Draw) -> Instance:
    """Two operators, each of several parts."""
    t = type_("f32", d.long(2))
    first, second = d.of("silu", "hard_swish"), d.of("silu", "softplus")
    return Instance(function({"x": t}, [
        f"%a = graph.{first} %x : {t}", f"%y = graph.{second} %a : {t}"], "y", t),
        f"{FUSE}{{across=false}}", 1e-5)


def merge_equal_reads(d: Draw) -> Instance:
    t = type_("f32", d.dims(1))
    return Instance(function({"x": t}, [f"%y = graph.{d.of('mul', 'add')} %x, %x : {t}"], "y", t),
                    FUSE)


def forward_copy(d: Draw) -> Instance:
    """A product, transposed."""
    a, b, c = d.long(3)
    wide, t = type_("f32", [a, c]), type_("f32", [c, a])
    return Instance(function({"x": type_("f32", [a, b]), "z": type_("f32", [b, c])}, [
        f"%a = graph.matmul %x, %z : {wide}",
        f"%y = graph.transpose %a {{perm = [1, 0]}} : {t}"], "y", t), FUSE, 1e-5)


def forward_parts(d: Draw) -> Instance:
    """Two products side by side, transposed."""
    a, b, c = (d.of("2", "3", "5") for _ in range(3))
    part, t = type_("f32", [a, c]), type_("f32", [c, str(2 * int(a))])
    wide = type_("f32", [str(2 * int(a)), c])
    return Instance(function({"x": type_("f32", [a, b]), "z": type_("f32", [b, c])}, [
        f"%a = graph.matmul %x, %z : {part}",
        f"%n = graph.neg %a : {part}",
        f"%w = graph.concat %a, %n {{axis = 0}} : {wide}",
        f"%y = graph.transpose %w {{perm = [1, 0]}} : {t}"], "y", t), FUSE, 1e-5)


def inline_parts(d: Draw) -> Instance:
    """Halves of rows, turned as by a rotary embedding."""
    a, half = d.of("3", "n"), d.of("2", "5")
    whole, t, part = str(2 * int(half)), type_("f32", [a, str(2 * int(half))]), type_(
        "f32", [a, half])
    first, second = (f"{{starts = [0, {k}], sizes = [{a}, {half}], steps = [1, 1]}}"
                     for k in ("0", half))
    return Instance(function({"x": t}, [
        f"%a = graph.slice %x {first} : {part}", f"%b = graph.slice %x {second} : {part}",
        f"%n = graph.neg %b : {part}",
        f"%w = graph.concat %n, %a {{axis = 1}} : {type_('f32', [a, whole])}",
        f"%y = graph.{d.of('mul', 'add')} %x, %w : {t}"], "y", t), FUSE, 1e-6,
        target="cuda sm_90")


def select_given(d: Draw) -> Instance:
    """Scores of queries against keys of a cache and new ones behind it."""
    a, b, old, new = (d.of("2", "3", "5") for _ in range(4))
    whole, keys = str(int(old) + int(new)), type_("f32", [old, b])
    t = type_("f32", [a, whole])
    return Instance(function({
        "x": type_("f32", [a, b]), "k": keys, "l": type_("f32", [new, b])}, [
        f"%c = graph.concat %k, %l {{axis = 0}} : {type_('f32', [whole, b])}",
        f"%t = graph.transpose %c {{perm = [1, 0]}} : {type_('f32', [b, whole])}",
        f"%y = graph.matmul %x, %t : {t}"], "y", t), FUSE, 1e-5, target="cuda sm_90")


def widen_view(d: Draw) -> Instance:
    """Logits of halves, widened and viewed as rows, that two nests read."""
    a, b, c = d.long(3)
    half, wide = type_("bf16", [a, b, c]), type_("f32", [a, b, c])
    flat, t = type_("f32", [f"{a}*{b}", c]), type_("f32", [f"{a}*{b}", "1"])
    return Instance(function({"x": half}, [
        f"%w = graph.cast %x {{to = f32}} : {wide}",
        f"%v = graph.reshape %w {{shape = [{a}*{b}, {c}]}} : {flat}",
        f"%m = graph.reduce_max %v {{axes = [1], keepdims = true}} : {t}",
        f"%s = graph.reduce_sum %v {{axes = [1], keepdims = true}} : {t}",
        f"%y = graph.add %m, %s : {t}"], "y", t), FUSE, 1e-5)


def drop_unit_axes(d: Draw) -> Instance:
    """A sum over one element."""
    a, b = d.long(2)
    t = type_("f32", [a, b])
    return Instance(function({"x": type_("f32", [a, "1", b])}, [
        f"%y = graph.reduce_sum %x {{axes = [1], keepdims = false}} : {t}"], "y", t), FUSE)


def drop_idle_axes(d: Draw) -> Instance:
    """A sum over what was repeated: alike for all places."""
    a, b, c = (d.of("2", "3", "5") for _ in range(3))
    wide, t = type_("f32", [a, b, c]), type_("f32", [a, b])
    return Instance(function({"x": type_("f32", [a, "1", c])}, [
        f"%a = graph.broadcast %x {{shape = [{a}, {b}, {c}]}} : {wide}",
        f"%y = graph.reduce_sum %a {{axes = [2], keepdims = false}} : {t}"], "y", t), FUSE, 1e-5)


def fold_table(d: Draw) -> Instance:
    """An image of known sizes, resampled: the coordinates of an axis are a table."""
    size, wanted = d.of("3", "5", "7"), d.of("4", "6", "9", "11")
    t = type_("f32", ["2", wanted])
    return Instance(function({"x": type_("f32", ["2", size])}, [
        f"%y = graph.resize %x {{shape = [2, {wanted}], scales = literal[], mode = \"linear\", "
        f"coordinates = \"half_pixel\"}} : {t}"], "y", t), FUSE, 1e-5)


INSTANCES: dict[str, Maker] = {make.__name__: make for make in (
    merge_views, compose_views, inline_producers, merge_equal_reads, forward_copy, forward_parts,
    inline_parts, select_given, widen_view, fold_table, drop_unit_axes, drop_idle_axes,
    inline_own_producers)}
