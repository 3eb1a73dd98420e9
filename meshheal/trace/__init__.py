"""The event log of a run: written by a recorder, read on demand, replayed call by call."""
