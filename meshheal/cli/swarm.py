"""`meshheal swarm`: placeholder until the swarm is there."""


def swarm() -> None:
    raise SystemExit(2)
