"""FX as an interface: graph-level modules as `torch.fx.GraphModule`s of ATen operators.

    gm = compiler.to_fx(model)            a GraphModule that computes what the graph passes made
    exe = compiler.compile(gm, args=(x,)) and back

    writer.py     the walk over a module: constants, sizes, results
    functions.py  elementwise operations, reductions, products and orders
    memory.py     operations that move elements
    control.py    branches and loops
    windows.py    convolutions, pools and resampling

The modules import torch when functions are called.
"""
