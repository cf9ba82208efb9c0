"""`python -m snapfm`: the command line."""

from snapfm.cli import main

main()
