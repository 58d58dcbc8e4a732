"""Passes on the `block` level; the pass `block-fold-it` lives in the file `fold_it.py`."""
