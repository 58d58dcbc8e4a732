"""`block.scan`: running combinations of values along one dim."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from dialects.block.tile_ops import AlongDimOp
from dialects.definition import irdl_op_definition
from dialects.strata.types import TileType


@irdl_op_definition
class ScanOp(AlongDimOp):
    """Inclusive scan along a dim: `%y = block.scan add %x dim 1 : tile<2x8xf32>`.

    The order of combination is unspecified, so floating-point sums may differ in rounding.
    `block.scan sort` is the values along the dim in ascending order, as signed integers.
    Constraints: (C1) the result has the operand's type; (C2) `dim` is a dim of the operand that
    lies neither in lanes nor in a group; (C3) the combiner is one of COMBINERS, or `sort`
    for integers.
    """

    name = "block.scan"

    @staticmethod
    def of(combiner: str, value: SSAValue, dim: int) -> ScanOp:
        return ScanOp.typed(combiner, value, dim, value.type)

    @property
    def sorts(self) -> bool:
        return self.combiner.data == "sort"

    def verify_(self) -> None:
        type_ = self.value.type
        assert isinstance(type_, TileType)
        if not self.sorts or not isinstance(type_.element, IntegerType):
            self.check_combiner("C3")
        if self.result.type != type_:
            raise VerifyException("C1: block.scan must keep the type of its operand")
        if not 0 <= self.axis < type_.rank or self.axis in (type_.lanes, type_.group):
            raise VerifyException("C2: block.scan must scan a dim of the tile that is not in lanes")
