"""A kernel that the user has written in the language of a target, as an operation of the graph.

The kernel is a launch of the program, between those of our own kernels. No pass looks inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.irdl import prop_def, var_operand_def, var_result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, int_of, ints_of, sizes_of, text_of
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata import types as t
from dialects.strata.binding import EvaluationError
from dialects.strata.types import Array, ExprAttr, SizesAttr, TensorType

ELEMENTS = {str(e): e for e in (t.f16, t.bf16, t.f32, t.f64, t.i1, t.i8, t.i16, t.i32, t.i64,
                                t.ui8, t.ui16, t.ui32, t.ui64)}


@irdl_op_definition
class ForeignKernelOp(GraphOp):
    """A launch of a kernel that is not ours: it reads tensors, and makes or changes others.

    `source` is a module in the target's language, which defines `kernel`. `call` is the text of its
    arguments, in which `{k}` stands for buffer k, and numbers after those of all buffers stand for
    `sizes`. Buffers are the first `reads` operands, then the results. `kept` names for each result
    the operand with whose elements it starts; -1 for a result that starts undefined, whose type is
    the next one of `elements` and `shapes` (each rank, then its sizes). `grid` has the numbers of
    programs along one to three axes.
    Constraints: (C1) `kept` names operands; (C2) there is a type for each result that starts
    undefined; (C3) the grid has one to three axes.
    Source: triton.jit, torch.library.triton_op.
    Example: %y = graph.foreign_kernel %x {kernel = "k", source = "...", call = "{0}, {1}, {2}",
        sizes = [n], reads = 1, kept = [-1], elements = "f32", shapes = [1, n], grid = [n],
        warps = 4, stages = 3} : f32[n] given %x: f32[n]
    """

    name = "graph.foreign_kernel"
    MAY_FOLD: ClassVar[bool] = False
    inputs = var_operand_def(TensorType)
    kernel = prop_def(StringAttr)
    source = prop_def(StringAttr)
    call = prop_def(StringAttr)
    sizes = prop_def(SizesAttr)
    reads = prop_def(ExprAttr)
    kept = prop_def(SizesAttr)
    elements = prop_def(StringAttr)
    shapes = prop_def(SizesAttr)
    grid = prop_def(SizesAttr)
    warps = prop_def(ExprAttr)
    stages = prop_def(ExprAttr)
    made = var_result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        if not 1 <= len(sizes_of(attributes, "grid")) <= 3:
            raise ShapeError("C3: a grid has one to three axes")
        kept = ints_of(attributes, "kept")
        if any(not -1 <= k < len(types) for k in kept) or not (
                0 <= int_of(attributes, "reads") <= len(types)):
            raise ShapeError(f"C1: there are {len(types)} operands, not those of {list(kept)}")
        fresh = iter(_fresh(attributes))
        found = [types[k] if k >= 0 else next(fresh, None) for k in kept]
        if None in found or next(fresh, None) is not None:
            raise ShapeError("C2: each result that starts undefined needs a type")
        return [type_ for type_ in found if type_ is not None]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        raise EvaluationError(f"the kernel {self.kernel.data} is written in a target's own "
                              "language, and has no meaning in NumPy")


def _fresh(attributes: Attributes) -> list[TensorType]:
    """The types of results that start undefined."""
    shapes, found = list(sizes_of(attributes, "shapes")), list[TensorType]()
    for name in text_of(attributes, "elements").split():
        if name not in ELEMENTS or not shapes or shapes[0].constant is None:
            raise ShapeError(f"C2: there is no type of {name}")
        rank = shapes[0].constant
        found.append(t.tensor(ELEMENTS[name], shapes[1:rank + 1]))
        shapes = shapes[rank + 1:]
    return found
