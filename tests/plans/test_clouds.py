"""Whose a node or a Service is, where there are several clouds."""

import pytest

from proreus.app.clouds.plan import (
    ANNOTATION_CLOUD,
    LABEL_CLOUD,
    Belonging,
    Contested,
    Decided,
    Foreign,
    Misplaced,
    Placed,
    Rules,
    Undecided,
    belonging,
    found_by,
    heard,
    is_let_go,
    labels_of_all,
    place,
    recorded,
)
from proreus.cloudprovider import (
    CloudError,
    IdentityConflict,
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.cloudprovider.lookups import system_uuids
from proreus.controllers.service.intake import ANNOTATION_CLOUD_IN_USE
from proreus.kube.objects import FINALIZER_LOAD_BALANCER
from proreus.testing.objects import node, service

YES, NO, UNKNOWN, SILENT = Ownership.YES, Ownership.NO, Ownership.UNKNOWN, None


@pytest.mark.parametrize(
    ("east", "west", "label", "expected"),
    [
        (YES, NO, "", Decided("east", sure=True)),
        (YES, UNKNOWN, "", Decided("east", sure=False)),  # west cannot tell
        (YES, UNKNOWN, "east", Decided("east", sure=True)),
        (YES, NO, "west", Decided("east", sure=True)),  # the provider id comes first
        (YES, SILENT, "", Decided("east", sure=False)),  # west may own it, too
        (YES, SILENT, "west", Decided("west", sure=True)),  # which may own it, too
        (YES, UNKNOWN, "west", Decided("west", sure=True)),
        (YES, SILENT, "east", Decided("east", sure=True)),
        (YES, YES, "east", Decided("east", sure=True)),
        (UNKNOWN, UNKNOWN, "west", Decided("west", sure=True)),
        (UNKNOWN, SILENT, "west", Decided("west", sure=True)),
        (UNKNOWN, SILENT, "east", Decided("east", sure=True)),
        (UNKNOWN, NO, "", Decided("east", sure=True)),
        (UNKNOWN, NO, "west", Decided("east", sure=True)),
        (SILENT, NO, "", Decided("east", sure=True)),
        (UNKNOWN, UNKNOWN, "", Undecided(("east", "west"))),
        (UNKNOWN, SILENT, "", Undecided(("east", "west"))),
        (SILENT, SILENT, "", Undecided(("east", "west"))),
        (NO, NO, "", Foreign()),
        (NO, NO, "west", Foreign()),
    ],
)
def test_a_node_belongs_to_the_cloud_that_owns_its_provider_id_or_that_its_label_names(
    east: Ownership | None, west: Ownership | None, label: str, expected: Belonging
) -> None:
    labels = {LABEL_CLOUD: label} if label else {}
    assert belonging(node("n", labels=labels), {"east": east, "west": west}) == expected


@pytest.mark.parametrize("label", ["", "north"])
def test_a_node_that_two_clouds_own_is_contested(label: str) -> None:
    labels = {LABEL_CLOUD: label} if label else {}
    found = belonging(node("n", labels=labels), {"east": YES, "west": YES})
    assert isinstance(found, Contested)
    assert LABEL_CLOUD in found.text
    assert "east" in found.text
    assert "west" in found.text


def test_a_label_of_no_cloud_is_contested_where_it_would_have_to_decide() -> None:
    found = belonging(node("n", labels={LABEL_CLOUD: "north"}), {"east": UNKNOWN, "west": NO})
    assert found == Contested(
        "the label proreus.io/cloud names 'north', but the clouds are east, west"
    )


MACHINE = Instance("east://1")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"east": MACHINE, "west": NotFound()}, "east"),
        ({"east": NotFound(), "west": MACHINE}, "west"),
        ({"east": NotFound(), "west": NotFound()}, NotFound()),
    ],
)
def test_a_machine_is_in_the_one_cloud_that_finds_it_while_all_others_do_not(
    answers: dict[str, InstanceAnswer], expected: str | NotFound
) -> None:
    assert found_by(answers) == expected


@pytest.mark.parametrize(
    ("answers", "type_", "texts"),
    [
        ({"east": MACHINE, "west": MACHINE}, IdentityConflict, ["east and west both"]),
        ({"east": MACHINE, "west": CloudError("down")}, CloudError, ["east has", "west", "down"]),
        ({"east": NotFound(), "west": CloudError("down")}, CloudError, ["west does not", "down"]),
        (
            {"east": CloudError("off"), "west": CloudError("down")},
            CloudError,
            ["east does not", "1 other", "off"],
        ),
        ({"east": IdentityConflict("two"), "west": MACHINE}, IdentityConflict, ["east", "two"]),
    ],
)
def test_without_the_answers_of_all_clouds_nothing_is_decided(
    answers: dict[str, InstanceAnswer], type_: type[CloudError], texts: list[str]
) -> None:
    found = found_by(answers)
    assert type(found) is type_
    for text in texts:
        assert text in str(found)


@pytest.mark.parametrize(
    ("uuid", "is_found"),
    [
        ("4C4C4544-0001-4000-8000-000000000001", True),
        ("44454c4c-0100-0040-8000-000000000001", True),
        ("4c4c4544-0001-4000-8000-000000000002", False),
        ("", False),
    ],
)
def test_a_cloud_that_has_the_kubelet_s_own_machine_outdoes_one_that_has_it_elsewhere(
    uuid: str, *, is_found: bool
) -> None:
    """Such as two clouds with a search each in one oVirt: there is one machine of that UUID."""
    machine = Instance("east://4c4c4544-0001-4000-8000-000000000001")
    answers: dict[str, InstanceAnswer] = {"east": machine, "west": IdentityConflict("not here")}
    uuids = system_uuids(node("n", system_uuid=uuid))
    found = found_by(answers, uuids)
    assert found == "east" if is_found else isinstance(found, IdentityConflict)
    down: dict[str, InstanceAnswer] = {**answers, "north": CloudError("down")}
    assert isinstance(found_by(down, uuids), CloudError)


OFF = Instance("east://1", state=InstanceState.STOPPED, powered_off=True)


@pytest.mark.parametrize("label", ["", "east", "west", "north"])
@pytest.mark.parametrize(
    "answer", [MACHINE, OFF, NotFound(), NotFound(tombstone=True), CloudError("down")]
)
def test_no_machine_is_absent_or_off_whose_label_names_another_cloud_than_the_one_that_was_asked(
    label: str, answer: InstanceAnswer
) -> None:
    labels = {LABEL_CLOUD: label} if label else {}
    found = heard(node("n", labels=labels), answer, ("east", "simulated"), {"west"})
    if (isinstance(answer, NotFound) or answer is OFF) and label in {"west", "north"}:
        assert isinstance(found, IdentityConflict)
        said = "no such machine runs" if answer is OFF else "there is no such machine"
        assert f"{said} in east or simulated" in str(found)
        assert f"proreus.io/cloud names '{label}'" in str(found)
        assert ("--cloud-provider" if label == "north" else "cloud-config") in str(found)
    else:
        assert found is answer


Answers = dict[str, dict[str, str] | CloudError]


def test_a_volume_has_the_labels_of_the_cloud_that_knows_it() -> None:
    zone, error = {"zone": "a"}, CloudError("no such volume")
    east: Answers = {"mine": zone, "both": error, "lost": error, "foreign": {}, "empty": error}
    west: Answers = {
        "mine": error,
        "both": zone,
        "lost": CloudError("2"),
        "foreign": {},
        "empty": {},
    }
    expected = {"mine": zone, "both": zone, "lost": error, "foreign": {}, "empty": error}
    assert labels_of_all([east, west]) == expected
    assert labels_of_all([west, east])["both"] == zone


RULES = Rules(("east", "west", "bare"), "east", {"fast": "west"}, lacking={"bare"})


@pytest.mark.parametrize(
    ("wanted", "in_use", "class_", "type_", "has_finalizer", "expected"),
    [
        ("", "", None, "LoadBalancer", False, Placed("east")),
        ("west", "", None, "LoadBalancer", False, Placed("west")),
        ("", "", "fast", "LoadBalancer", False, Placed("west")),
        ("east", "", "fast", "LoadBalancer", False, Placed("west")),  # a class cannot change
        ("", "", "another", "LoadBalancer", False, None),
        ("", "", None, "ClusterIP", False, None),
        # Made before there were several clouds.
        ("", "", None, "LoadBalancer", True, Placed("east")),
        ("west", "", None, "LoadBalancer", True, Placed("east", leaves=True)),
        ("", "", None, "ClusterIP", True, Placed("east")),
        # Another default does not move what there is.
        ("", "west", None, "LoadBalancer", True, Placed("west")),
        ("", "west", None, "LoadBalancer", False, Placed("east")),
        ("east", "west", None, "LoadBalancer", True, Placed("west", leaves=True)),
        ("", "west", None, "ClusterIP", True, Placed("west")),
        # Of another's class by now, with a load balancer that is ours.
        ("", "west", "another", "LoadBalancer", True, Placed("west")),
        ("", "", "another", "LoadBalancer", True, None),
        # A mistake takes nothing away.
        ("north", "west", None, "LoadBalancer", True, Placed("west")),
        ("bare", "west", None, "LoadBalancer", True, Placed("west")),
    ],
)
def test_a_service_is_in_the_cloud_that_made_its_load_balancer_then_in_the_one_it_names(
    wanted: str,
    in_use: str,
    class_: str | None,
    type_: str,
    *,
    has_finalizer: bool,
    expected: Placed | None,
) -> None:
    annotations = {ANNOTATION_CLOUD: wanted, ANNOTATION_CLOUD_IN_USE: in_use}
    subject = service(
        annotations={name: value for name, value in annotations.items() if value},
        finalizers=(FINALIZER_LOAD_BALANCER,) if has_finalizer else (),
        type=type_,
        load_balancer_class=class_,
    )
    assert place(subject, RULES) == expected


@pytest.mark.parametrize(
    ("wanted", "former", "class_", "type_", "has_finalizer", "expected"),
    [
        # What a tool has taken away that replaces the Service by its own file.
        ("west", "west", None, "LoadBalancer", True, Placed("west")),
        ("", "west", None, "LoadBalancer", True, Placed("west")),
        ("", "west", None, "LoadBalancer", False, Placed("west")),
        ("", "west", "another", "LoadBalancer", True, Placed("west")),
        ("", "west", None, "ClusterIP", True, Placed("west")),
        ("", "east", "fast", "LoadBalancer", True, Placed("west")),  # a class cannot change
        # What somebody asks for goes before.
        ("east", "west", None, "LoadBalancer", True, Placed("west", leaves=True)),
        ("east", "west", None, "LoadBalancer", False, Placed("east")),
        ("", "west", None, "ClusterIP", False, None),
        # A mistake takes nothing away, with whatever else the tool has taken.
        ("north", "west", None, "LoadBalancer", False, Placed("west")),
        ("bare", "west", None, "LoadBalancer", False, Placed("west")),
        # A cloud that there is not.
        ("", "north", None, "LoadBalancer", True, Placed("east")),
        ("", "bare", None, "LoadBalancer", True, Placed("east")),
    ],
)
def test_the_cloud_that_was_recorded_counts_where_the_record_was_taken_away(
    wanted: str,
    former: str,
    class_: str | None,
    type_: str,
    *,
    has_finalizer: bool,
    expected: Placed | None,
) -> None:
    subject = service(
        annotations={ANNOTATION_CLOUD: wanted} if wanted else {},
        finalizers=(FINALIZER_LOAD_BALANCER,) if has_finalizer else (),
        type=type_,
        load_balancer_class=class_,
    )
    assert place(subject, RULES, former) == expected


@pytest.mark.parametrize(
    ("in_use", "wanted", "former", "type_", "expected"),
    [
        ("north", "", "west", "LoadBalancer", Placed("west")),
        ("east", "", "west", "LoadBalancer", Placed("west")),
        ("bare", "", "west", "ClusterIP", Placed("west")),
        ("east", "east", "west", "LoadBalancer", Placed("west", leaves=True)),
        ("east", "", "north", "LoadBalancer", Placed("east")),
        ("east", "", "bare", "LoadBalancer", Placed("east")),
    ],
)
def test_a_record_that_somebody_else_has_written_does_not_count(
    in_use: str, wanted: str, former: str, type_: str, expected: Placed
) -> None:
    annotations = {ANNOTATION_CLOUD_IN_USE: in_use, ANNOTATION_CLOUD: wanted}
    subject = service(
        annotations={name: value for name, value in annotations.items() if value},
        finalizers=(FINALIZER_LOAD_BALANCER,),
        type=type_,
    )
    assert place(subject, RULES, former) == expected


@pytest.mark.parametrize(
    ("type_", "has_finalizer", "cloud", "is_gone"),
    [
        ("LoadBalancer", True, "west", False),
        ("LoadBalancer", False, "", False),  # anybody may write the annotation
        ("ClusterIP", True, "west", False),
        ("ClusterIP", False, "", True),
    ],
)
def test_a_cloud_is_recorded_by_annotation_and_finalizer_until_the_service_is_let_go(
    type_: str, cloud: str, *, has_finalizer: bool, is_gone: bool
) -> None:
    subject = service(
        annotations={ANNOTATION_CLOUD_IN_USE: "west"},
        finalizers=(FINALIZER_LOAD_BALANCER,) if has_finalizer else (),
        type=type_,
    )
    assert (recorded(subject), is_let_go(subject)) == (cloud, is_gone)


@pytest.mark.parametrize(
    ("annotations", "has_finalizer", "text"),
    [
        ({ANNOTATION_CLOUD: "north"}, False, "the clouds are east, west, bare"),
        ({ANNOTATION_CLOUD: "bare"}, False, "bare has no load balancers"),
        ({ANNOTATION_CLOUD_IN_USE: "north"}, True, "does not have"),
        ({ANNOTATION_CLOUD_IN_USE: "bare"}, True, "does not have"),
    ],
)
def test_a_service_without_a_cloud_that_could_have_it_is_misplaced(
    annotations: dict[str, str], *, has_finalizer: bool, text: str
) -> None:
    finalizers = (FINALIZER_LOAD_BALANCER,) if has_finalizer else ()
    found = place(service(annotations=annotations, finalizers=finalizers), RULES)
    assert isinstance(found, Misplaced)
    assert text in found.text


def test_a_default_cloud_without_load_balancers_has_made_none() -> None:
    rules = Rules(("bare", "east"), "bare", lacking={"bare"})
    found = place(service(finalizers=(FINALIZER_LOAD_BALANCER,)), rules)
    assert isinstance(found, Misplaced)


def test_services_without_a_class_are_none_of_ours_if_a_flag_says_so() -> None:
    rules = Rules(("east", "west"), "east", {"fast": "west"}, classless=False)
    assert place(service(), rules) is None
    assert place(service(load_balancer_class="fast"), rules) == Placed("west")
