"""Every flag has a test that shows what it does, or a reason why it does nothing."""

import ast
from pathlib import Path
from typing import Final

import msgspec
import pytest

from proreus.app import flags
from proreus.app.leader import settings_of
from proreus.app.options import Options
from proreus.controllers.settings import Settings

TESTS: Final = Path(__file__).parents[1]
NO_EFFECT: Final = "Has no effect"

ACCESS = "apiserver/test_access.py::"
CLI = "app/test_cli.py::"
CONFIG = "kube/test_config.py::"
EFFECTS = "apiserver/test_flag_effects.py::test_flags_of_pace_and_names_are_obeyed"
ELECTING = "app/test_election.py::"
ELECTION = "runtime/test_leaderelection.py::"
FRONT = "serving/test_authentication.py::"
HOOKS = "apiserver/test_webhooks.py::"
IPAM = "apiserver/test_node_ipam.py::"
LIFECYCLE = "apiserver/test_node_lifecycle.py::"
EVICTION = "apiserver/test_pod_eviction.py::"
EVICTION_PLAN = "plans/test_node_lifecycle.py::"
OUT_OF_SERVICE = "apiserver/test_out_of_service.py::"
LIFECYCLE_PLAN = "plans/test_cloud_node_lifecycle.py::"
NODES = "apiserver/test_nodes.py::"
OWN_SERVING = "app/test_serving_flags.py::"
OWN_TLS = OWN_SERVING + "test_both_servers_have_the_certificates_and_limits_of_their_own_flags"
RELOAD = "apiserver/test_reload.py::"
ROUTES = "apiserver/test_routes.py::"
SERVING = "apiserver/test_serving.py::"
SSH_KEYS = (
    "apiserver/test_ssh_keys.py::test_instances_have_the_key_and_new_ones_get_it_by_few_calls"
)
SLOTS = "runtime/test_controller.py::test_no_more_keys_are_out_than_the_slots_and_one_batch"
TLS = "serving/test_tls.py::"

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
    # leader migration
    "enable_leader_migration": ELECTING
    + "test_migrated_controllers_run_under_the_second_lease_that_comes_after_the_main_one",
    "leader_migration_config": "app/test_migration.py::test_every_version_and_form_is_read",
    # debugging
    "profiling": "serving/test_endpoints.py::test_without_profiling_its_paths_are_absent",
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
    "test_everything_wrong_with_the_flags_is_reported_at_once",
    "node_cidr_mask_size_ipv4": IPAM
    + "test_dual_stack_nodes_get_a_block_of_each_family_by_one_patch",
    "node_cidr_mask_size_ipv6": IPAM
    + "test_dual_stack_nodes_get_a_block_of_each_family_by_one_patch",
    # ssh keys controller
    "ssh_user": SSH_KEYS,
    "ssh_keyfile": SSH_KEYS,
    # secure serving
    "bind_address": SERVING + "test_a_taken_port_ends_the_process_with_one_clear_error",
    "secure_port": SERVING + "test_a_taken_port_ends_the_process_with_one_clear_error",
    "cert_dir": TLS + "test_a_folder_keeps_the_certificate_over_restarts",
    "tls_cert_file": SERVING
    + "test_the_secure_port_shows_health_to_all_and_the_rest_to_those_who_may",
    "tls_private_key_file": SERVING
    + "test_the_secure_port_shows_health_to_all_and_the_rest_to_those_who_may",
    "tls_cipher_suites": TLS + "test_only_the_suites_and_the_curve_of_the_flags_are_served",
    "tls_min_version": TLS + "test_versions_below_the_lowest_are_refused",
    "tls_curve_preferences": TLS + "test_only_the_suites_and_the_curve_of_the_flags_are_served",
    "tls_sni_cert_key": TLS + "test_each_name_gets_its_certificate",
    "http2_max_streams_per_connection": NO_EFFECT,
    "disable_http2_serving": NO_EFFECT,
    "permit_port_sharing": "serving/test_endpoints.py::test_two_processes_share_a_port_if_both_may",
    "permit_address_sharing": NO_EFFECT,
    "metrics_bind_address": SERVING + "test_a_taken_port_ends_the_process_with_one_clear_error",
    "status_page": "app/test_status_page.py::test_the_page_allows_no_code_but_its_own",
    # authentication
    "authentication_kubeconfig": OWN_SERVING + "test_a_kubeconfig_of_its_own_is_used_for_reviews",
    "authentication_token_webhook_cache_ttl": ACCESS
    + "test_many_requests_cost_one_review_of_each_kind",
    "authentication_skip_lookup": OWN_SERVING
    + "test_the_authorities_and_headers_of_clients_are_those_of_the_flags",
    "authentication_tolerate_lookup_failure": ACCESS
    + "test_without_the_right_to_read_the_authorities_it_does_not_start",
    "client_ca_file": "serving/test_access.py::"
    "test_a_master_may_do_everything_without_the_api_server",
    "requestheader_client_ca_file": "serving/test_access.py::test_a_front_proxy_names_the_user",
    "requestheader_allowed_names": "serving/test_access.py::test_nobody_else_does",
    "requestheader_username_headers": FRONT + "test_the_first_header_that_has_a_name_counts",
    "requestheader_uid_headers": FRONT
    + "test_a_front_proxy_gives_name_groups_and_extra_of_the_user",
    "requestheader_group_headers": FRONT
    + "test_a_front_proxy_gives_name_groups_and_extra_of_the_user",
    "requestheader_extra_headers_prefix": FRONT
    + "test_a_front_proxy_gives_name_groups_and_extra_of_the_user",
    # authorization
    "authorization_kubeconfig": OWN_SERVING + "test_a_kubeconfig_of_its_own_is_used_for_reviews",
    "authorization_webhook_cache_authorized_ttl": ACCESS
    + "test_many_requests_cost_one_review_of_each_kind",
    "authorization_webhook_cache_unauthorized_ttl": ACCESS
    + "test_a_token_is_let_in_as_long_as_its_owner_has_the_right",
    "authorization_always_allow_paths": "serving/test_authorization.py::test_paths_for_everybody",
    # webhook
    "webhooks": HOOKS + "test_nothing_is_bound_unless_a_webhook_is_enabled",
    "webhook_bind_address": HOOKS + "test_the_api_server_calls_the_webhook_and_follows_its_answer",
    "webhook_secure_port": HOOKS + "test_nothing_is_bound_unless_a_webhook_is_enabled",
    "webhook_cert_dir": OWN_TLS,
    "webhook_tls_cert_file": HOOKS + "test_the_api_server_calls_the_webhook_and_follows_its_answer",
    "webhook_tls_private_key_file": HOOKS
    + "test_the_api_server_calls_the_webhook_and_follows_its_answer",
    "webhook_tls_cipher_suites": OWN_TLS,
    "webhook_tls_min_version": OWN_TLS,
    "webhook_tls_curve_preferences": OWN_TLS,
    "webhook_tls_sni_cert_key": OWN_TLS,
    "webhook_disable_http2_serving": NO_EFFECT,
    # misc
    "v": "runtime/test_klog.py::test_verbosity_decides_what_is_written",
    "vmodule": "runtime/test_klog.py::test_single_files_have_a_verbosity_of_their_own",
    "logging_format": CLI + "test_the_log_is_json_if_that_is_asked_for",
    "log_flush_frequency": NO_EFFECT,
    "log_json_info_buffer_size": NO_EFFECT,
    "log_json_split_stream": NO_EFFECT,
    "log_text_info_buffer_size": NO_EFFECT,
    "log_text_split_stream": NO_EFFECT,
    "version": CLI + "test_versions_and_help_go_to_standard_output",
    # proreus
    "config": "app/test_config_file.py::test_the_command_line_wins_over_the_file",
    "cloud_config_secret": RELOAD + "test_a_secret_is_waited_for_and_followed",
    "leader_elect_per_controller": ELECTING
    + "test_replicas_that_start_together_share_the_controllers_and_one_takes_what_is_left",
    "delete_leaks_after": "apiserver/test_leaks.py::"
    "test_what_a_service_left_behind_is_reported_and_deleted_on_request",
    "load_balancer_resync_period": "apiserver/test_drift.py::"
    "test_each_pass_repairs_what_somebody_changed_and_nothing_else",
    "load_balancer_classes": "apiserver/test_services.py::test_a_class_can_be_owned_by_flag",
    "load_balancer_cloud": "apiserver/test_several_clouds.py::"
    "test_services_go_to_the_cloud_that_class_annotation_or_default_name",
    "classless_load_balancers": "apiserver/test_services.py::test_a_class_can_be_owned_by_flag",
    "node_deletion_confirmations": LIFECYCLE
    + "test_one_answer_is_enough_where_the_operator_configures_it",
    "node_deletion_interval": LIFECYCLE
    + "test_a_node_goes_after_two_answers_that_are_far_enough_apart",
    "node_deletion_witnesses": LIFECYCLE_PLAN + "test_every_batch_has_witnesses",
    "node_startup_grace": LIFECYCLE + "test_a_node_that_was_never_initialised_waits_for_the_grace",
    "node_deletion_breaker": LIFECYCLE_PLAN + "test_the_limit",
    "node_deletion_resume": LIFECYCLE
    + "test_many_machines_that_vanish_at_once_stop_all_deletions_until_an_operator_resumes_them",
    "delete_nodes_by_name": LIFECYCLE
    + "test_a_node_without_provider_id_stays_unless_names_are_trusted",
    "node_monitor_grace_period": EVICTION
    + "test_a_silent_node_is_given_up_and_its_pods_leave_by_their_tolerations",
    "node_startup_grace_period": EVICTION_PLAN
    + "test_a_node_that_never_reported_has_a_grace_of_its_own",
    "node_eviction_rate": EVICTION_PLAN + "test_one_node_of_a_zone_is_tainted_every_ten_seconds",
    "secondary_node_eviction_rate": EVICTION_PLAN
    + "test_a_large_zone_that_is_mostly_silent_is_tainted_slowly",
    "large_cluster_size_threshold": EVICTION_PLAN + "test_rates",
    "unhealthy_zone_threshold": EVICTION_PLAN + "test_states_of_zones",
    "node_out_of_service_taint": OUT_OF_SERVICE
    + "test_a_node_without_power_goes_out_of_service_and_returns",
    "node_out_of_service_grace": "plans/test_out_of_service.py::"
    "test_two_answers_and_the_grace_take_a_node_out_of_service",
    "use_service_account_credentials": "apiserver/test_rights.py::"
    "test_the_classic_command_line_does_all_under_accounts_and_needs_every_right",
}
"""By field: the test, as a path below `tests`, or NO_EFFECT, which the help text explains."""

TABLE: Final = flags.flags_of(Options)


def test_every_flag_has_a_row_and_every_row_a_flag() -> None:
    missing = TABLE.keys() - SHOWN_BY.keys()
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


def test_controllers_get_what_the_flags_give() -> None:
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
