"""Passes on the `graph` level; the file `fold_it.py` has the pass `graph-fold-it`."""
