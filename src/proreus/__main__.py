"""`python -m proreus` is the command `proreus`."""

import sys

from proreus.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
