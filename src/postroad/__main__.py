"""`python -m postroad`: the same as the `postroad` command."""

import sys

from postroad.cli import main

if __name__ == "__main__":
    sys.exit(main())
