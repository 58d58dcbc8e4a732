"""Models as libraries with a C interface: code, constants, and what runs around them.

    tables.py   the plan of a model as C tables and functions
    header.py   model.h and the example
    link.py     objects, archives and shared libraries, by the system's compiler and linker
    others.py   code for some sizes beside that for all
    loaded.py   such a library in Python, without a compiler

`api.h`, `checks.c`, `any_state.c`, `others.c`, `states.c`, `calls.c` and `threads.c` are the same
for all models; libraries for GPUs have all of them but `states.c` and `threads.c`.
"""
