"""Special functions as formulas of values: gamma, error and Bessel functions, and those of bits.

Functions of `gamma`, `errors` and `bessel` take and return f64, in which narrower floats are exact,
so that their results are rounded once. Edges (NaN, infinities, poles) are those of eager PyTorch.
"""
