"""Passes that give kernels their schedules; for example, `schedule.py` holds `loop-schedule`."""
