"""Lifetimes and places of buffers."""
