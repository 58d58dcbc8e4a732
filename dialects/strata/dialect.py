"""The dialect `strata`, which all levels share."""

from xdsl.ir import Dialect

from dialects.ranks.attributes import GroupAttr
from dialects.strata.control import CONTROL_OPS
from dialects.strata.func import FuncOp, ReturnOp
from dialects.strata.requirements import REQUIREMENT_OPS
from dialects.strata.schedule import ScheduleAttr
from dialects.strata.sizes import SIZE_OPS
from dialects.strata.types import (
    BufferType,
    ExprAttr,
    LiteralAttr,
    ShapeAttr,
    SizesAttr,
    SymbolsAttr,
    TensorType,
    TileType,
    WeightAttr,
    WeightsAttr,
)

Strata = Dialect(
    "strata", [FuncOp, ReturnOp, *SIZE_OPS, *REQUIREMENT_OPS, *CONTROL_OPS],
    [ExprAttr, SizesAttr, SymbolsAttr, TensorType, BufferType, ShapeAttr, TileType, WeightAttr,
     WeightsAttr, LiteralAttr, ScheduleAttr, GroupAttr])
