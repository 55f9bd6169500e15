"""``python -m metaclient``: the same as the command ``metaclient``."""

from metaclient.cli import main

main()
