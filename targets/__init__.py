"""Targets: a folder each, with machine facts, schedule rules, emission of code, and launching."""
