"""`python -m sim.models` prints every figure of every profile as Markdown."""

from sim.models.profiles import table

if __name__ == "__main__":
    print(table())
