"""Analyses of the lifetimes and places of buffers."""
