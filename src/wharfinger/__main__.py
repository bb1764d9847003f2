"""`python -m wharfinger` is `wharf`."""

from wharfinger.cli.main import main

main()
