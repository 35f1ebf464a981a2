"""Every flag has a test that shows what it does, or a reason why it does nothing."""

import ast
from pathlib import Path
from typing import Final

import msgspec
import pytest

from proreus.app import flags
from proreus.app.leader import settings_of
from proreus.app.options import Options
from proreus.controllers.environment import Settings

TESTS: Final = Path(__file__).parents[1]
NO_EFFECT: Final = "Without effect"

CLI = "app/test_cli.py::"
CONFIG = "kube/test_config.py::"
EFFECTS = "apiserver/test_flag_effects.py::test_flags_of_pace_and_names_are_obeyed"
ELECTION = "runtime/test_leaderelection.py::"
IPAM = "apiserver/test_node_ipam.py::"
LIFECYCLE = "apiserver/test_node_lifecycle.py::"
LIFECYCLE_PLAN = "plans/test_cloud_node_lifecycle.py::"
NODES = "apiserver/test_nodes.py::"
RELOAD = "apiserver/test_reload.py::"
ROUTES = "apiserver/test_routes.py::"
SLOTS = "runtime/test_controller.py::test_no_more_keys_are_out_than_the_slots_and_one_batch"

SHOWN_BY: Final = {
    # generic
    "kubeconfig": CONFIG + "test_the_flag_comes_before_everything",
    "master": CONFIG + "test_the_master_flag_is_where_requests_go",
    "kube_api_qps": "app/test_limit.py::test_so_many_go_at_once_and_then_so_many_a_second",
    "kube_api_burst": "app/test_limit.py::test_so_many_go_at_once_and_then_so_many_a_second",
    "kube_api_content_type": NO_EFFECT,
    "min_resync_period": NO_EFFECT,
    "controller_start_interval": EFFECTS,
    "controllers": CLI + "test_controllers_are_selected_by_name_and_alias",
    "feature_gates": NO_EFFECT,
    # leader election
    "leader_elect": "apiserver/test_replicas.py::test_only_the_leader_acts",
    "leader_elect_lease_duration": EFFECTS,
    "leader_elect_renew_deadline": ELECTION
    + "test_a_leader_that_cannot_renew_gives_up_at_the_deadline",
    "leader_elect_retry_period": ELECTION + "test_a_leader_renews_with_one_write_each_retry_period",
    "leader_elect_resource_lock": "app/test_flags.py::"
    "test_all_problems_are_reported_together_with_their_flags",
    "leader_elect_resource_name": EFFECTS,
    "leader_elect_resource_namespace": EFFECTS,
    "contention_profiling": NO_EFFECT,
    # cloud provider
    "cloud_provider": CLI + "test_an_unknown_provider_names_those_installed",
    "cloud_config": RELOAD
    + "test_a_token_that_changes_in_the_file_is_used_and_no_service_is_touched",
    "cluster_name": EFFECTS,
    "allow_untagged_cloud": "app/test_cloud.py::"
    "test_a_new_provider_without_cluster_id_is_refused_unless_that_is_allowed",
    "external_cloud_volume_plugin": NO_EFFECT,
    "node_monitor_period": LIFECYCLE
    + "test_a_node_goes_after_two_answers_that_are_far_enough_apart",
    "node_sync_period": NO_EFFECT,
    # node controller
    "concurrent_node_syncs": SLOTS,
    "concurrent_node_status_updates": "plans/test_cloud_node.py::"
    "test_initialised_nodes_share_groups_and_new_ones_do_not",
    "node_status_update_frequency": NODES
    + "test_a_changed_address_is_written_once_and_equal_ones_never",
    # service controller
    "concurrent_service_syncs": SLOTS,
    # route controller
    "configure_cloud_routes": ROUTES + "test_the_manager_runs_it_when_it_knows_the_pods_networks",
    "cluster_cidr": ROUTES + "test_the_manager_runs_it_when_it_knows_the_pods_networks",
    "route_reconciliation_period": ROUTES + "test_a_route_that_somebody_deletes_comes_back",
    # node ipam controller
    "allocate_node_cidrs": IPAM + "test_dual_stack_nodes_get_a_block_of_each_family_by_one_patch",
    "cidr_allocator_type": IPAM + "test_the_clouds_blocks_are_written_to_the_nodes",
    "service_cluster_ip_range": IPAM
    + "test_dual_stack_nodes_get_a_block_of_each_family_by_one_patch",
    "node_cidr_mask_size": "plans/test_node_ipam.py::"
    "test_everything_wrong_with_the_flags_is_said_at_once",
    "node_cidr_mask_size_ipv4": IPAM
    + "test_dual_stack_nodes_get_a_block_of_each_family_by_one_patch",
    "node_cidr_mask_size_ipv6": IPAM
    + "test_dual_stack_nodes_get_a_block_of_each_family_by_one_patch",
    # secure serving
    "http2_max_streams_per_connection": NO_EFFECT,
    "disable_http2_serving": NO_EFFECT,
    # webhook
    "webhook_disable_http2_serving": NO_EFFECT,
    # misc
    "v": "runtime/test_klog.py::test_verbosity_decides_what_is_written",
    "vmodule": "runtime/test_klog.py::test_single_files_have_a_verbosity_of_their_own",
    "logging_format": CLI + "test_the_log_is_json_if_that_is_asked_for",
    "log_flush_frequency": NO_EFFECT,
    "version": CLI + "test_versions_and_help_go_to_standard_output",
    # proreus
    "config": "app/test_config_file.py::test_the_command_line_wins_over_the_file",
    "cloud_config_secret": RELOAD + "test_a_secret_is_waited_for_and_followed",
    "load_balancer_resync_period": "apiserver/test_drift.py::"
    "test_each_pass_repairs_what_somebody_changed_and_nothing_else",
    "load_balancer_classes": "apiserver/test_services.py::test_a_class_can_be_owned_by_flag",
    "classless_load_balancers": "apiserver/test_services.py::test_a_class_can_be_owned_by_flag",
    "node_deletion_confirmations": LIFECYCLE
    + "test_one_answer_is_enough_where_the_operator_says_so",
    "node_deletion_interval": LIFECYCLE
    + "test_a_node_goes_after_two_answers_that_are_far_enough_apart",
    "node_deletion_witnesses": LIFECYCLE_PLAN + "test_every_batch_has_witnesses",
    "node_startup_grace": LIFECYCLE + "test_a_node_that_was_never_initialised_waits_for_the_grace",
    "node_deletion_breaker": LIFECYCLE_PLAN + "test_the_limit",
    "node_deletion_resume": LIFECYCLE
    + "test_many_machines_that_vanish_at_once_stop_all_deletions_until_told_otherwise",
    "delete_nodes_by_name": LIFECYCLE
    + "test_a_node_without_provider_id_stays_unless_names_are_trusted",
}
"""By field: the test, as a path below `tests`, or NO_EFFECT, which the help text explains."""

TABLE: Final = flags.flags_of(Options)


NOT_YET: Final = {"secure serving", "authentication", "authorization", "webhook"}
"""Groups that are being built."""
ALSO_NOT_YET: Final = {
    "enable_leader_migration", "leader_migration_config", "leader_elect_per_controller",
    "profiling", "use_service_account_credentials",
}  # fmt: skip


def test_every_flag_has_a_row_and_every_row_a_flag() -> None:
    missing = {
        field
        for field, flag in TABLE.items()
        if field not in SHOWN_BY and field not in ALSO_NOT_YET and flag.group not in NOT_YET
    }
    assert missing == set(), "say which test shows the effect"
    assert SHOWN_BY.keys() - TABLE.keys() == set(), "these flags are gone"


@pytest.mark.parametrize("place", sorted({*SHOWN_BY.values()} - {NO_EFFECT}))
def test_the_test_of_the_row_exists(place: str) -> None:
    file, _, name = place.partition("::")
    module = ast.parse((TESTS / file).read_text())
    assert name in {
        node.name
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_help_says_of_exactly_those_without_effect_that_they_have_none_and_why() -> None:
    silent = {field for field, shown_by in SHOWN_BY.items() if shown_by == NO_EFFECT}
    assert {field for field, flag in TABLE.items() if flag.help.startswith(NO_EFFECT)} == silent
    for field in silent:
        assert len(TABLE[field].help.removeprefix(NO_EFFECT).strip(":, ")) > 10, field


def test_what_controllers_are_told_is_what_the_flags_say() -> None:
    assert settings_of(Options()) == Settings()
    for field, default in msgspec.structs.asdict(Settings()).items():
        other = {bool: not default, int: 7, float: 7.5, str: "x", tuple: ("x",)}[type(default)]
        options = msgspec.structs.replace(Options(), **{field: other})
        assert settings_of(options) == msgspec.structs.replace(Settings(), **{field: other})


CLASSIC = (
    "--cloud-provider=x", "--leader-elect=true", "--use-service-account-credentials",
    "--allocate-node-cidrs=true", "--configure-cloud-routes=true",
    "--cluster-cidr=172.17.0.0/16", "-v=2",
)  # fmt: skip
"""The command line of Kubernetes' own documentation."""


def test_the_classic_command_line_parses() -> None:
    options, removed = flags.parse(Options, CLASSIC, "ccm", "")
    assert removed == ()
    assert options == Options(
        cloud_provider="x",
        leader_elect=True,
        use_service_account_credentials=True,
        allocate_node_cidrs=True,
        configure_cloud_routes=True,
        cluster_cidr=("172.17.0.0/16",),
        v=2,
    )
