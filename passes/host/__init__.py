"""Passes on the `host` level; the file `fold_it.py` has the pass `host-fold-it`."""
