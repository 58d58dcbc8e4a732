"""Passes on the `block` level; the file `fold_it.py` has the pass `block-fold-it`."""
