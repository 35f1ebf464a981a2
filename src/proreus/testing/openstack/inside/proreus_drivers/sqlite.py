# mypy: ignore-errors
"""Makes SQLite serve several writers."""

from sqlalchemy import event
from sqlalchemy.engine import Engine


def one_writer_at_a_time():
    """Let transactions wait for one another at their begin.

    One that first reads and then writes is refused at once if another has written meanwhile: no
    waiting helps there. Call it before the database is opened.
    """
    event.listen(Engine, "before_cursor_execute", _at_once, retval=True)


def _at_once(_connection, _cursor, statement, parameters, _context, _many):
    return "BEGIN IMMEDIATE" if statement == "BEGIN" else statement, parameters
