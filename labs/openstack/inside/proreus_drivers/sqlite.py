# mypy: ignore-errors
"""Makes SQLite serve several writers.

A transaction that first reads and then writes is refused at once, as locked, if another has written
meanwhile: no waiting helps there. Call either function before the database is used.
"""

from sqlalchemy import event
from sqlalchemy.engine import Engine


def one_writer_at_a_time():
    """Let transactions wait for one another at their begin.

    Not for services whose threads are not the kernel's: all of them would wait.
    """
    event.listen(Engine, "before_cursor_execute", _at_once, retval=True)


def locked_is_deadlock():
    """Let services that repeat what ends in a deadlock repeat this, too."""
    from oslo_db import exception
    from oslo_db.sqlalchemy import exc_filters
    from sqlalchemy.exc import OperationalError

    @exc_filters.filters("sqlite", OperationalError, r".*database is locked")
    def _locked(error, *_):
        raise exception.DBDeadlock(error)


def _at_once(_connection, _cursor, statement, parameters, _context, _many):
    return "BEGIN IMMEDIATE" if statement == "BEGIN" else statement, parameters
