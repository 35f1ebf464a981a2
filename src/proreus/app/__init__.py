"""Run the process: flags, wiring and command line."""
