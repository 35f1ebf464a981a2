"""The comparison notices what differs, what does not, and what is said to differ but does not."""

from .compare import Difference, Meant, differences, idle, surprises

GO = {"node a": "there", "node a/label x": "1", "node a/taint t:NoSchedule": "(removed)"}
LABEL = Meant("labels", ("one",), "node a/label *", "1", "2")


def test_pictures_that_are_equal_do_not_differ() -> None:
    assert differences("one", GO, dict(GO)) == []


def test_a_field_that_is_other_missing_or_new_differs() -> None:
    ours = {"node a": "gone", "node a/label x": "1", "node a/label y": "2"}
    assert differences("one", GO, ours) == [
        Difference("one", "node a", "there", "gone"),
        Difference("one", "node a/label y", None, "2"),
        Difference("one", "node a/taint t:NoSchedule", "(removed)", None),
    ]


def test_a_difference_without_a_reason_is_a_surprise() -> None:
    ours = {**GO, "node a/label x": "2"}
    assert surprises("one", GO, ours, [LABEL]) == []
    assert len(surprises("one", GO, {**ours, "node a": "gone"}, [LABEL])) == 1
    assert len(surprises("one", GO, {**GO, "node a/label x": "3"}, [LABEL])) == 2
    assert len(surprises("two", GO, ours, [LABEL])) == 1


def test_a_difference_that_is_meant_and_missing_is_a_surprise() -> None:
    assert surprises("one", GO, GO, [LABEL]) == [
        "one: node a/label * does not differ, but should (labels)"
    ]
    assert surprises("two", GO, GO, [LABEL]) == []


def test_nothing_is_not_any_text() -> None:
    absent = Meant("labels", ("*",), "node a/label x", "1", None)
    assert surprises("one", GO, {**GO, "node a/label x": ""}, [absent]) != []
    gone = {field: value for field, value in GO.items() if field != "node a/label x"}
    assert surprises("one", GO, gone, [absent]) == []


def test_square_brackets_in_patterns_are_themselves() -> None:
    rule = Meant("x", ("*",), "cloud [web]", "[a]", "*")
    assert surprises("one", {"cloud [web]": "[a]"}, {"cloud [web]": "b"}, [rule]) == []
    assert surprises("one", {"cloud w": "a"}, {"cloud w": "b"}, [rule]) != []


def test_a_rule_that_no_difference_needs_is_idle() -> None:
    found = differences("one", GO, {**GO, "node a/label x": "2"})
    other = Meant("other", ("*",), "node b", None, "*")
    assert idle([LABEL, other], found) == [other]
