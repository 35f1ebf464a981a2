# mypy: ignore-errors
"""Octavia's API, with our driver: `run_octavia.py STATE PORT`."""

import sys

import wsgi_server
from proreus_drivers import sqlite


def main():
    """Serve it."""
    state, port = sys.argv[1:]
    from octavia.api import app

    sqlite.one_writer_at_a_time()
    wsgi_server.serve(
        app.setup_app(argv=["octavia-api", "--config-file", f"{state}/octavia.conf"]), port
    )


if __name__ == "__main__":
    main()
