# mypy: ignore-errors
"""Placement: `run_placement.py STATE PORT`."""

import os
import sys

import wsgi_server


def main():
    """Serve it."""
    state, port = sys.argv[1:]
    os.environ["OS_PLACEMENT_CONFIG_DIR"] = state
    sys.argv = sys.argv[:1]
    from placement.wsgi import init_application

    wsgi_server.serve(init_application(), port)


if __name__ == "__main__":
    main()
