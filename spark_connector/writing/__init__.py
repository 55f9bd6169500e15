"""DataFrames into puts, deletes and increments."""
