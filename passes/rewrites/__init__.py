"""Rewrites that several passes share."""
