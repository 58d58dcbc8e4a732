"""Operations whose pretty form is their own: reductions, loops, convolutions, slices."""

from __future__ import annotations

from typing import Any

from compiler.frontend.stablehlo.operations import Function, Op, Region
from compiler.frontend.stablehlo.parser import Form, Parser


def reduce(p: Parser, op: Op) -> None:
    """`(%x init: %0), (%y init: %1) applies stablehlo.add across dimensions = [1] : types`, or with
    a region after the types: `reducer(%a: t, %b: t) (...) { ... }`."""
    inputs, starts = list[str](), list[str]()
    while p.accept("("):
        inputs.append(p.take().text)
        p.expect("init")
        p.expect(":")
        starts.append(p.take().text)
        p.expect(")")
        p.accept(",")
    op.operands = inputs + starts
    if p.accept("applies"):
        op.attributes["applies"] = p.take().text
    p.expect("across")
    p.expect("dimensions")
    p.expect("=")
    op.attributes["dimensions"] = p.attribute()
    if p.next.text == "{":
        op.attributes |= p.attribute()
    p.signature(op)
    if p.accept("reducer"):
        arguments: list[Any] = []
        while p.accept("("):
            arguments += p.listed(p.argument, ")")
        p.expect("{")
        firsts, seconds = arguments[::2], arguments[1::2]
        op.regions = [Region([*firsts, *seconds], p.operations())]


def while_(p: Parser, op: Op) -> None:
    """`(%i = %0, %x = %1) : types cond { ... } do { ... }`"""
    names: list[str] = []
    p.expect("(")

    def one() -> None:
        names.append(p.take().text)
        p.expect("=")
        op.operands.append(p.take().text)

    p.listed(one, ")")
    p.signature(op)
    if p.accept("attributes"):
        p.attribute()
    arguments = list(zip(names, op.types, strict=True))
    for word in ("cond", "do"):
        p.expect(word)
        p.expect("{")
        op.regions.append(Region(arguments, p.operations()))


def convolution(p: Parser, op: Op) -> None:
    """`(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {...} {...} : ...`
    """
    p.expect("(")
    op.operands = p.listed(lambda: p.take().text, ")")
    p.expect("dim_numbers")
    p.expect("=")
    op.attributes["dim_numbers"] = p.dim_numbers()
    p.accept(",")
    p.items(op)
    p.signature(op)


def sliced(p: Parser, op: Op) -> None:
    """`%x [0:2, 1:5:2] : types`"""
    op.operands = [p.take().text]
    p.expect("[")
    starts, limits, strides = list[int](), list[int](), list[int]()

    def one() -> None:
        starts.append(int(p.take().text))
        p.expect(":")
        limits.append(int(p.take().text))
        strides.append(int(p.take().text) if p.accept(":") else 1)

    p.listed(one, "]")
    op.attributes |= {"start_indices": starts, "limit_indices": limits, "strides": strides}
    if p.next.text == "{":
        op.attributes |= p.attribute()
    p.signature(op)


def constant(p: Parser, op: Op) -> None:
    """`dense<1.0> : type`, perhaps after a dictionary of attributes."""
    if p.next.text == "{":
        op.attributes |= p.attribute()
    op.attributes["value"] = p.attribute()


def scan(p: Parser, op: Op) -> None:
    """`(%x) inits (%carry) dimension=0 attributes {...} { ... } : types`"""
    p.expect("(")
    op.operands = p.listed(lambda: p.take().text, ")")
    p.expect("inits")
    p.expect("(")
    starts = p.listed(lambda: p.take().text, ")")
    op.attributes["operandSegmentSizes"] = [len(op.operands), len(starts)]
    op.operands += starts
    p.items(op)
    p.signature(op)


def custom_call(p: Parser, op: Op) -> None:
    """`@name(%x) {...} : types`"""
    op.attributes["call_target_name"] = p.take().text[1:]
    p.expect("(")
    op.operands = p.listed(lambda: p.take().text, ")")
    if p.next.text == "{":
        op.attributes |= p.attribute()
    p.signature(op)


def sharding(p: Parser, op: Op) -> None:
    """`%x <@mesh, [{"x"}, {}]> : type`"""
    op.operands = [p.take().text]
    p.expect("<")
    p.balanced()
    p.expect(">")
    p.signature(op)


FORMS: dict[str, Form] = {
    "stablehlo.constant": constant, "stablehlo.reduce": reduce, "stablehlo.while": while_,
    "stablehlo.convolution": convolution, "stablehlo.slice": sliced,
    "stablehlo.custom_call": custom_call, "chlo.scan": scan, "sdy.sharding_constraint": sharding}
"""Operation -> what reads what follows its name."""


def parse(text: str, name: str) -> dict[str, Function]:
    """The functions of a module. Raises StrataError with the line of what cannot be read."""
    parser = Parser(text, name, FORMS)
    try:
        return parser.module()
    except RecursionError:
        raise parser.error("brackets or regions are nested too deeply") from None
    except (ValueError, LookupError) as error:  # a number that is none, lists of other lengths
        raise parser.error(f"the text before this does not fit together: {error}") from None
