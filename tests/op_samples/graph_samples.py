"""Samples of every graph operation. Tests of all levels derive from `SAMPLES`."""

from __future__ import annotations

from tests.op_samples.graph_elementwise import ELEMENTWISE
from tests.op_samples.graph_narrow import NARROW
from tests.op_samples.graph_ordering import ORDERING
from tests.op_samples.graph_quantization import QUANTIZATION
from tests.op_samples.graph_ranks import RANKS
from tests.op_samples.graph_tensors import TENSORS
from tests.op_samples.graph_windows import WINDOWS
from tests.op_samples.sample import Sample, build_module

SAMPLES: list[Sample] = [*ELEMENTWISE, *TENSORS, *WINDOWS, *ORDERING, *QUANTIZATION,
                         *NARROW, *RANKS]

__all__ = ["SAMPLES", "Sample", "build_module"]
