"""`python -m topologies` writes the saved networks anew."""

from topologies.files import write_saved

write_saved()
