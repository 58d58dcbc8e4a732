"""The samples of all operators: the common ones, special functions, and PrimTorch's."""

from __future__ import annotations

from tests.pytorch import op_samples
from tests.pytorch.operators.special_samples import SPECIAL_SAMPLES

SAMPLES = {name: [*op_samples.SAMPLES.get(name, []), *SPECIAL_SAMPLES.get(name, [])]
           for name in op_samples.SAMPLES | SPECIAL_SAMPLES}
