"""Layers of a model that repeat: a few are imported, and calls stand for all of them."""
