"""Passes on the `graph` level; the pass `graph-fold-it` lives in the file `fold_it.py`."""
