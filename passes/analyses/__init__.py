"""Analyses that passes use; nothing here changes a module."""
