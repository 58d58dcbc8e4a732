"""The prepared verifiers of operations refuse what xDSL's own verifier refuses, in its words.

Each operation of the dialects' texts is changed in every way that a definition speaks of, one at a
time: operands, results, regions, properties and their types.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ArrayAttr, NoneAttr, StringAttr, i1
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.test_value import create_ssa_value

from dialects.context import make_context

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
    for file in FILES:
        for op in samples(file):
            definition = type(op).get_irdl_definition()
            for name, own in zip((n for n, _ in definition.regions), op.regions, strict=False):
                assert getattr(op, name) is own
            first = next((n for n, _ in definition.operands), None)
            if first is not None and op.operands and isinstance(getattr(op, first), SSAValue):
                assert getattr(op, first) is op.operands[0]
                with pytest.raises((NotImplementedError, AttributeError)):
                    setattr(op, first, op.operands[0])
