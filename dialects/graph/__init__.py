"""The `graph` dialect: a model as tensor operators, sizes possibly symbolic. See README.md."""

from dialects.graph.activation import (
    ClipOp,
    EluOp,
    GeluOp,
    HardSigmoidOp,
    HardSwishOp,
    LeakyReluOp,
    ReluOp,
    SiluOp,
    SoftplusOp,
)
from dialects.graph.bits import BitcastOp, ShiftLeftOp, ShiftRightOp
from dialects.graph.constant import ConstantOp, RangeOp, SizesOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.convolution import ConvOp, ConvTransposeOp
from dialects.graph.cumulative import CumulativeProdOp, CumulativeSumOp
from dialects.graph.elementwise import (
    AddOp,
    DivOp,
    FmodOp,
    MaxOp,
    MinOp,
    ModOp,
    MulOp,
    PowOp,
    SubOp,
)
from dialects.graph.exponential import Expm1Op, Log1pOp
from dialects.graph.gather import GatherElementsOp, GatherNdOp, GatherOp
from dialects.graph.grouped import GroupedMatmulOp
from dialects.graph.integer_contraction import ConvIntegerOp, MatmulIntegerOp
from dialects.graph.logic import (
    AndOp,
    EqualOp,
    GreaterEqualOp,
    GreaterOp,
    LessEqualOp,
    LessOp,
    OrOp,
    WhereOp,
    XorOp,
)
from dialects.graph.normalization import BatchNormOp, LayerNormOp, LogSoftmaxOp, SoftmaxOp
from dialects.graph.ordering import ArgMaxOp, ArgMinOp, TopKOp
from dialects.graph.pooling import AvgPoolOp, MaxPoolIndicesOp, MaxPoolOp
from dialects.graph.quantization import DequantizeLinearOp, QuantizeLinearOp
from dialects.graph.recurrent import LstmOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMeanOp, ReduceMinOp, ReduceProdOp, ReduceSumOp
from dialects.graph.resize import ResizeOp
from dialects.graph.scatter import ScatterElementsOp, ScatterNdOp
from dialects.graph.search import SearchSortedOp
from dialects.graph.shape import (
    BroadcastOp,
    ConcatOp,
    FramesOp,
    PadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from dialects.graph.trees import DescendOp
from dialects.graph.trigonometric import (
    AcoshOp,
    AcosOp,
    AsinhOp,
    AsinOp,
    AtanhOp,
    AtanOp,
    CoshOp,
    SinhOp,
    TanOp,
)
from dialects.graph.unary import (
    AbsOp,
    CastOp,
    CeilOp,
    CosOp,
    ErfOp,
    ExpOp,
    FloorOp,
    IsinfOp,
    IsnanOp,
    LogOp,
    NegOp,
    NotOp,
    ReciprocalOp,
    RoundOp,
    SigmoidOp,
    SignOp,
    SinOp,
    SqrtOp,
    TanhOp,
)

__all__ = [
    "AbsOp", "AcosOp", "AcoshOp", "AddOp", "AndOp", "ArgMaxOp", "ArgMinOp", "AsinOp", "AsinhOp",
    "AtanOp", "AtanhOp", "AvgPoolOp", "BatchNormOp", "BitcastOp", "BroadcastOp", "CastOp",
    "CeilOp", "ClipOp", "ConcatOp", "ConstantOp", "ConvIntegerOp", "ConvOp", "ConvTransposeOp",
    "CosOp", "CoshOp", "CumulativeProdOp", "CumulativeSumOp", "DequantizeLinearOp",
    "DescendOp", "DivOp", "EluOp", "EqualOp", "ErfOp", "ExpOp", "Expm1Op", "FloorOp", "FmodOp",
    "FramesOp", "GatherElementsOp", "GatherNdOp", "GatherOp", "GeluOp", "GreaterEqualOp",
    "GreaterOp", "GroupedMatmulOp", "HardSigmoidOp", "HardSwishOp", "IsinfOp", "IsnanOp",
    "LayerNormOp", "LeakyReluOp", "LessEqualOp", "LessOp", "Log1pOp", "LogOp", "LogSoftmaxOp",
    "LstmOp", "MatmulIntegerOp", "MatmulOp", "MaxOp", "MaxPoolIndicesOp", "MaxPoolOp", "MinOp",
    "ModOp", "MulOp", "NegOp", "NotOp", "OrOp", "PadOp", "PowOp", "QuantizeLinearOp", "RangeOp",
    "ReciprocalOp", "ReduceMaxOp", "ReduceMeanOp", "ReduceMinOp", "ReduceProdOp", "ReduceSumOp",
    "ReluOp", "ReshapeOp", "ResizeOp", "RoundOp", "ScatterElementsOp", "ScatterNdOp",
    "SearchSortedOp", "ShiftLeftOp", "ShiftRightOp", "SigmoidOp", "SignOp", "SiluOp", "SinOp",
    "SinhOp", "SizesOp", "SliceOp", "SoftmaxOp", "SoftplusOp", "SqrtOp", "SubOp", "TanOp",
    "TanhOp", "TopKOp", "TransposeOp", "WhereOp", "XorOp",
]
