"""Tools of this repository's tests, benchmarks and demonstrations, beside `proreus.testing`.

Nothing of it is in the wheel: it needs root, Debian or Go, or is of use for these tests only. The
commands, such as `python -m labs.cluster`, are run in the root of the repository.
"""
