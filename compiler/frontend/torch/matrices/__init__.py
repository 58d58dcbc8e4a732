"""Linear algebra of PyTorch: factors of matrices, solutions, inverses, determinants.

    decompositions.py   operators of ATen as other operators; small matrices row by row
    operators.py        operators of our own for what takes a loop over rows
    checks.py           what raises errors for singular matrices in exported programs
    loops.py            these as loops of the graph level, in blocks of rows and columns
"""
