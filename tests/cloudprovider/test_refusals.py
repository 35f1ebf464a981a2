"""Whose refusals say something about the quota."""

from proreus.cloudprovider.refusals import FORGET_SECONDS, Refusals


def test_the_first_refusal_of_each_is_everybodys() -> None:
    refusals = Refusals()
    assert not refusals.refused("a", sent=0, now=1)
    assert not refusals.refused("b", sent=0, now=1)
    assert not refusals.is_alone("a")
    assert not refusals.is_alone("never asked")


def test_who_is_refused_again_while_nobody_else_is_refused_anew_is_alone_with_it() -> None:
    refusals = Refusals()
    refusals.refused("a", sent=0, now=1)
    assert refusals.refused("a", sent=6, now=7)
    assert refusals.is_alone("a")


def test_calls_that_were_under_way_at_the_first_refusal_are_no_repetition() -> None:
    refusals = Refusals()
    refusals.refused("a", sent=0, now=1)
    assert not refusals.refused("a", sent=0.5, now=2)


def test_several_may_be_alone_but_not_while_another_is_refused_anew() -> None:
    refusals = Refusals()
    for who in ("a", "b"):
        refusals.refused(who, sent=0, now=1)
    assert not refusals.refused("a", sent=6, now=7)  # since b was, after it
    assert refusals.refused("b", sent=6, now=7)
    assert refusals.refused("a", sent=12, now=13)
    refusals.refused("c", sent=12, now=13)
    assert not refusals.refused("a", sent=18, now=19)
    assert not refusals.is_alone("a")


def test_who_is_admitted_or_forgotten_begins_anew() -> None:
    refusals = Refusals()
    refusals.refused("a", sent=0, now=1)
    refusals.admitted("a")
    assert not refusals.refused("a", sent=6, now=7)
    later = 7 + FORGET_SECONDS
    assert not refusals.refused("a", sent=later, now=later)


def test_calls_of_nobody_in_particular_are_everybodys() -> None:
    refusals = Refusals()
    refusals.refused(None, sent=0, now=1)
    assert not refusals.refused(None, sent=6, now=7)
