"""The swarm: worlds drawn at random, run through faults, heal and quiet, and checked against what must always hold."""

from sim.swarm.trial import Verdict, run
from sim.swarm.worlds import Drawn, draw

__all__ = ["Drawn", "Verdict", "draw", "run"]
