"""A refused password is not sent again at once; another one is."""

import pytest

from proreus.cloudprovider.errors import Unauthenticated
from proreus.cloudprovider.logins import Logins

LOGIN = ("https://sso.example.org", "user", "planted-secret")


def test_a_refused_login_is_held_back_and_told_without_the_password() -> None:
    known = Logins(90.0)
    known.check(LOGIN)
    known.refused(LOGIN, "sso: wrong user or password")
    with pytest.raises(Unauthenticated, match="wrong user or password; the same password") as told:
        known.check(LOGIN)
    assert "planted-secret" not in f"{told.value} {vars(known)}"
    for other in (("https://b", *LOGIN[1:]), (*LOGIN[:2], "new"), (LOGIN[0], "u", LOGIN[2])):
        known.check(other)


def test_a_login_that_serves_again_is_held_back_no_more() -> None:
    known = Logins(90.0)
    known.refused(LOGIN, "locked")
    known.accepted(LOGIN)
    known.check(LOGIN)


def test_after_a_pause_a_refused_login_is_tried_once_more() -> None:
    known = Logins(0.0)
    known.refused(LOGIN, "locked")
    known.check(LOGIN)
