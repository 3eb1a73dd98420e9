"""What a person wants to see of a run, folded from its event logs into columns that a page draws."""
