"""Lowering of scheduled kernels from `loop` to `block`.

    state.py     what is known about each axis at a place in the program: origin, tile, mask
    access.py    index expressions of a nest -> loads and stores of tiles
    compute.py   bodies of nests -> maps, reductions, dots
    kernel.py    the levels of a schedule -> grid, loops, and the order of everything
    loop_to_block.py  the pass
"""
