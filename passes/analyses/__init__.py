"""Questions that passes ask about modules; nothing here changes one."""
