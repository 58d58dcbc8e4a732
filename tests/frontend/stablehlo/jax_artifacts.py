"""What JAX exports of programs, and XLA's results, which are in the tree so that tests need no jax.

    python -m tests.frontend.stablehlo.jax_artifacts    writes artifacts/

Run it where jax and flax are installed, together with Strata or without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.frontend.stablehlo.jax_complex import COMPLEX
from tests.frontend.stablehlo.jax_programs import OPEN, PROGRAMS

ARTIFACTS = Path(__file__).parent / "artifacts"
KEPT = ("branches", "decoding", "elements", "factors", "formats", "functions", "gru", "indexing",
        "kmeans", "open_sizes", "orders", "spectra", "states", "step", "systems", "training",
        "unet")
"""Those whose artifacts are in the tree."""
EVERY = {**PROGRAMS, **COMPLEX}


def exported(name: str, s: int = 1) -> tuple[Any, list[Any], list[Any]]:
    """A program that JAX has exported, the inputs that it keeps, and XLA's results."""
    import jax
    from jax import export

    function, arguments = EVERY[name](s)
    given = arguments
    if name in OPEN:
        (rows,) = export.symbolic_shape("rows")
        given = tuple(jax.ShapeDtypeStruct((rows, *a.shape[1:]), a.dtype) for a in arguments)
    made = export.export(jax.jit(function))(*given)
    leaves = jax.tree.leaves(arguments)
    results = jax.tree.leaves(jax.jit(function)(*arguments))
    return made, [np.asarray(leaves[k]) for k in made.module_kept_var_idx], [
        np.asarray(v) for v in results]


def write() -> None:
    import jax

    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")  # names, no paths
    ARTIFACTS.mkdir(exist_ok=True)
    for name in KEPT:
        made, inputs, results = exported(name)
        (ARTIFACTS / f"{name}.mlirbc").write_bytes(made.mlir_module_serialized)
        np.savez_compressed(ARTIFACTS / f"{name}.npz", *inputs, **{
            f"result_{k}": v for k, v in enumerate(results)})


if __name__ == "__main__":
    write()
