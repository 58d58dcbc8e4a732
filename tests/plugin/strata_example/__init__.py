"""A dialect, a pass and a target for Strata, from outside: found through entry points."""
