"""Targets: one folder each, with machine facts, schedule rules, code emission and launching."""
