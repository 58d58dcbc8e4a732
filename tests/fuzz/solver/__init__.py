"""Models made by a solver, in the manner of NNSmith (Liu et al., ASPLOS 2023), and their judges.

    python -m tests.fuzz.solver --seed 1 --count 200 --jobs 2     make, run, reduce, tabulate
    python -m tests.fuzz.solver --show 17                         one model, and what is wrong

An operator's specification states what it requires of symbolic dims. Z3 finds dims that meet what
all operators of a model require, so models are valid by construction, and finds further dims for
those that the model leaves open, so that one model runs at several sizes.
"""
