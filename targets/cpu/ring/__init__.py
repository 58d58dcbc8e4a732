"""The CPU's code in the ring of docs/ring.md: the same kernels, loops, masks and addresses.

    builder.py    instructions on residues in place of those on floats
    plain.py      which values stay numbers
    calls.py      functions of residues, which the code calls back from NumPy
    program.py    a module at block level, loaded with such kernels

Only what computes with floats differs from the code that runs otherwise: a sum and a product are a
few exact instructions on f64, and all other functions are calls.
"""
