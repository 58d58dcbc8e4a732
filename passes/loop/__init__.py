"""Passes on the `loop` level; the file `fold_it.py` has the pass `loop-fold-it`."""
