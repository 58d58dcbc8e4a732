"""Passes on the `loop` level; the pass `loop-fold-it` lives in the file `fold_it.py`."""
