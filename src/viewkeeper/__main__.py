"""`python -m viewkeeper`: the command line."""

from viewkeeper.cli.main import main

main()
