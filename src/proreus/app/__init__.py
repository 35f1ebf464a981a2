"""The process: flags, wiring and command line."""
