"""Models as libraries that run on a GPU, with the C interface of those for processors.

    launches.py    kernels as tables, and all launches as a function over the sizes
    pieces.py      what is written and linked

`device_state.c`, `device.c` and `device_runs.c` are the same for all models. They load the driver,
`libcuda.so.1`, when the first state is created, and need nothing else of CUDA. Cubins are packed as
one text, which `unpack.c` unpacks then.
"""
