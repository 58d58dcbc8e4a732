"""Strata's dialects `graph`, `loop`, `host` and `block`, and the types that they share.

`symbolic` holds symbolic integer expressions for sizes and indices. `strata` holds the tensor and
tile types and the weight store. Nothing here imports passes, targets or the compiler.
"""
