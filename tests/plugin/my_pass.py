"""A pass in a file of its own: `--plugin my_pass.py --passes "default,my-pass"`.

    %y = graph.exp %x   ->   %y = graph.pow (2.718...), %x
"""

from dataclasses import dataclass

import numpy as np

from dialects.graph import ConstantOp, ExpOp, PowOp
from passes.base import StrataPass
from passes.rewriting import rewrite


@dataclass(frozen=True)
class MyPass(StrataPass):
    """Write exponentials as powers of `base`."""

    name = "my-pass"
    place = "after(graph-cse)"
    base: float = float(np.e)

    def run(self, context, module):
        def exp(op, at):
            # exp(x) == e^x
            dtype = op.result_tensors[0].dtype
            base = at.insert(ConstantOp.of_array(np.array(self.base, dtype), context.weights, "e"))
            return at(PowOp, base.results[0], op.x)

        rewrite(module, {ExpOp: [exp]}, context)
