"""`explain`: which kernels compute a model's nodes, what was fused and what was not, and why.

    api.py        the Python interface, also for programs of `torch.compile`
    collect.py    follows a compilation, and collects the facts
    edges.py      which nodes read which, through functions that calls share
    neighbours.py the nodes around a node, and why they are fused with it or not
    memory.py     memory over time, from the plan of buffers
    work.py       bytes and FLOPs of kernels
    scopes.py     the modules of a model, and the operations of some nodes
    report.py     the facts as text
"""
