"""Runs shown in a browser on this machine, as they are now: the page of the report, asked for piece by piece."""
