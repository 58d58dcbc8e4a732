"""The prepared verifiers of operations refuse what xDSL's own verifier refuses, in its words.

Each operation of the dialects' texts is changed in every way that a definition speaks of, one at a
time: operands, results, regions, properties and their types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ArrayAttr, NoneAttr, StringAttr, i1
from xdsl.ir import Attribute, Block, ErasedSSAValue, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.irdl.operations import get_accessors_from_op_def
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.test_value import create_ssa_value

from dialects.context import make_context
from dialects.verifying import verify

FILES = sorted(Path(__file__).parent.glob("*.mlir"))
STRANGERS: tuple[Attribute, ...] = (NoneAttr(), StringAttr("x"), i1, ArrayAttr([NoneAttr()]))


def samples(file: Path) -> Iterator[IRDLOperation]:
    """The first operation of each name, number of operands, and set of properties."""
    module = Parser(make_context(), file.read_text()).parse_module()
    seen = set[tuple[object, ...]]()
    for op in module.walk():
        kind = op.name, len(op.operands), len(op.results), frozenset(op.properties)
        if kind not in seen and isinstance(op, IRDLOperation):
            seen.add(kind)
            yield op


def variants(op: IRDLOperation) -> Iterator[Operation]:
    """The operation, and what a change of one part makes of it."""
    operands, results, regions = len(op.operands), [r.type for r in op.results], len(op.regions)
    yield made(op)
    for k in range(operands):
        yield made(op, operands=[v for n, v in enumerate(op.operands) if n != k])
    yield made(op, operands=[*op.operands, create_ssa_value(i1)])
    yield made(op, results=[*results, i1])
    yield made(op, results=results[:-1])
    yield made(op, regions=regions + 1)
    for count in range(regions):
        yield made(op, regions=count)
    for stranger in STRANGERS:
        for k in range(operands):
            changed = [create_ssa_value(stranger) if n == k else v
                       for n, v in enumerate(op.operands)]
            yield made(op, operands=changed)
        for k in range(len(results)):
            yield made(op, results=[stranger if n == k else t for n, t in enumerate(results)])
        for name in op.properties:
            yield made(op, properties={**op.properties, name: stranger})
    for name in op.properties:
        yield made(op, properties={k: v for k, v in op.properties.items() if k != name})
    yield made(op, properties={**op.properties, "another": StringAttr("x")})


def made(
    op: IRDLOperation, *, operands: list[SSAValue] | None = None,
    results: list[Attribute] | None = None, regions: int | None = None,
    properties: dict[str, Attribute] | None = None,
) -> Operation:
    """An operation of the same class; regions beyond its own are of one empty block."""
    own = [region.clone() for region in op.regions]
    count = len(own) if regions is None else regions
    return type(op).create(
        operands=list(op.operands) if operands is None else operands,
        result_types=[r.type for r in op.results] if results is None else results,
        properties=dict(op.properties) if properties is None else properties,
        regions=[*own, Region(Block())][:count] if count <= len(own) else [*own, Region(Block())])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_xdsl_refuses_is_refused_in_its_words(file: Path) -> None:
    refused = 0
    for op in samples(file):
        definition = type(op).get_irdl_definition()
        for variant in variants(op):
            try:
                definition.verify(variant)
            except VerifyException as error:
                refused += 1
                with pytest.raises(VerifyException) as found:
                    variant.verify_()
                assert str(found.value) == str(error)
    assert refused > 100


def test_named_parts_are_those_of_xdsl() -> None:
    """Those of operations, and of new ones without properties: what has a default value has it."""
    seen = Counter[str]()
    for op in (op for file in FILES for op in samples(file)):
        kind = type(op)
        parts = get_accessors_from_op_def(kind.get_irdl_definition(), None)
        for name, part in parts.items():
            if not type(part).__name__.endswith("Accessor"):
                continue
            seen[type(part).__name__] += 1
            for place in (op, made(op, properties={})):
                assert _told(lambda: getattr(place, name)) == _told(  # noqa: B023
                    lambda: part.__get__(place, kind)), name  # noqa: B023
        plain = kind.__new__(kind)
        plain.properties, plain.attributes = {}, {}
        IRDLOperation.__post_init__(plain)
        assert made(op, properties={}).properties == plain.properties
    assert min(seen[kind] for kind in (
        "BeforeVariadicSingleAccessor", "UniqueVariadicAccessor", "VariadicAttrAccessor",
        "PropertyAccessor", "OptionalPropertyAccessor")) > 0


def _told(ask: Callable[[], object]) -> object:
    """What is found, or the class of the error."""
    try:
        return ask()
    except (LookupError, AttributeError) as error:
        return type(error)


@pytest.mark.parametrize("part", ["regions", "operands"])
def test_named_parts_do_not_change(part: str) -> None:
    for op in (op for file in FILES for op in samples(file)):
        for name, _ in getattr(type(op).get_irdl_definition(), part):
            with pytest.raises((NotImplementedError, AttributeError)):
                setattr(op, name, None)


def test_a_property_can_be_set() -> None:
    for op in (op for file in FILES for op in samples(file)):
        for name, (property_, _) in type(op).get_irdl_definition().accessor_names.items():
            if property_ in op.properties:
                setattr(op, name, before := NoneAttr())
                assert op.properties[property_] is before is getattr(op, name)


# ---------------------------------------------------------------------- whole modules
SCALARS = """
builtin.module {
  strata.func @main(%x: f32[n], %k: i64[n], %b: i1[n]) -> (f32[n])
      inputs ["x", "k", "b"] outputs ["y"] {
    %y = loop.nest (i0: n) ins(%x[i0], %k[i0], %b[i0]) outs(f32[n][i0]) {
    ^bb0(%p: f32, %q: i64, %c: i1):
      %two = arith.constant 2.000000e+00 : f32
      %three = arith.constant 3 : i64
      %a = arith.addf %p, %two : f32
      %d = arith.divf %a, %p : f32
      %e = math.exp %d : f32
      %m = arith.addi %q, %three : i64
      %s = arith.shli %m, %three : i64
      %l = arith.cmpi slt, %m, %s : i64
      %o = arith.cmpf olt, %a, %e : f32
      %t = arith.andi %l, %o : i1
      %u = arith.select %t, %e, %d : f32
      %w = arith.extf %u : f32 to f64
      %v = arith.truncf %w : f64 to f32
      %i = arith.index_cast %m : i64 to index
      %j = arith.index_cast %i : index to i64
      %f = arith.sitofp %j : i64 to f32
      %r = arith.mulf %v, %f : f32
      loop.yield %r
    }
    strata.return %y
  }
}
"""
TEXTS = {file.stem: file.read_text() for file in FILES} | {"scalars": SCALARS}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_modules_are_verified_as_xdsl_verifies_them(text: str) -> None:
    """Operations of every dialect, those of xDSL among them, where they stand in a module."""
    module = Parser(make_context(), text).parse_module()
    kinds = {(op.name, len(op.operands), tuple(op.properties)): op for op in module.walk()
             if op is not module}
    refused = 0
    for op in kinds.values():
        for changed in changes(op):
            wanted = error_of(module.verify)
            assert error_of(lambda: verify(module)) == wanted, changed
            refused += wanted is not None
    assert refused > 20
    assert error_of(lambda: verify(module)) is None


def error_of(verified: Callable[[], None]) -> str | None:
    try:
        verified()
    except Exception as error:  # a stranger may also break the code of a verifier
        return f"{type(error).__name__}: {error}"
    return None


def changes(op: Operation) -> Iterator[str]:
    """Change an operation in place, in one way after another; each is undone again."""
    for name, value in list(op.properties.items()):
        for stranger in STRANGERS:
            op.properties[name] = stranger
            yield f"{op.name}: another {name}"
        del op.properties[name]
        yield f"{op.name}: no {name}"
        op.properties[name] = value
    for k, operand in enumerate(op.operands):
        for value in (create_ssa_value(NoneAttr()), create_ssa_value(i1), ErasedSSAValue(i1, None)):
            op.operands[k] = value
            yield f"{op.name}: another operand {k}"
        op.operands[k] = operand
    for result in op.results:
        type_ = result.type
        for stranger in STRANGERS:
            result._type = stranger
            yield f"{op.name}: another result"
        result._type = type_
    yield from misplacements(op)


def misplacements(op: Operation) -> Iterator[str]:
    """The operation at the end of its block, and in the block of another."""
    block, following = op.parent, op.next_op
    assert block is not None
    if following is not None:
        op.detach()
        block.add_op(op)
        yield f"{op.name}: at the end"
        op.detach()
        block.insert_op_before(op, following)
    op.parent = Block()
    yield f"{op.name}: with another parent"
    op.parent = block
