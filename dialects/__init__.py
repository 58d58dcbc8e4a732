"""Strata's dialects: `graph`, `loop`, `host` and `block`, with the types and sizes they share.

`expr` holds symbolic integer expressions (sizes and indices), `types` the tensor and tile types,
`weights` the store of model weights. Nothing here imports passes, targets or the compiler.
"""
