"""The session subject: the release's own scheduler and workers, driven turn by turn."""
