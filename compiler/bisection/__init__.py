"""Finds what makes a model fail: `python -m compiler bisect MODEL`.

    arguments.py   the options of the command, which the process of trials parses again
    search.py      the search: the pass, the rewrite in it, the operation, the model's node
    trials.py      a model at every step of the pipeline, judged as `verify` does
    probe.py       the process in which passes and programs run, for they may crash it
    imports.py     the node at which an import fails, or after which it computes wrong numbers
    kernels.py     the first kernel whose code computes something else than its tiles mean
    scalars.py     ... and the scalar operation in it
    quiet.py       the compiler without reproducers
    outcome.py     what a trial led to, and what was found
"""
