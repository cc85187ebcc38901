"""`python -m viewkeeper`: the command line."""

from viewkeeper.cli.start import main

main()
