"""Topics, subscriptions, schedules, alerts: what a message or an alert would be lost by."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from lustrum.core.alerts import ACTION_LABEL, AlertAction
from lustrum.core.events import KINDS
from lustrum.core.settings import Settings

from infra.local.topics import PUSHED

from .configuration import TERRAFORM, local_values, resources

PUSHES = resources()["google_pubsub_subscription"]["push"]
DAYS = 86_400  # seconds


class TestSubscriptions:
    def test_push_subscription_proves_who_it_is(self) -> None:
        (push,) = PUSHES["push_config"]
        (token,) = push["oidc_token"]
        assert "google_service_account.account" in token["service_account_email"]
        assert token["audience"] == push["push_endpoint"]

    def test_push_subscription_has_its_own_dead_letter_topic(self) -> None:
        (policy,) = PUSHES["dead_letter_policy"]
        assert policy["dead_letter_topic"] == "${google_pubsub_topic.dead[each.key].id}"
        assert 5 <= policy["max_delivery_attempts"] <= 100

    def test_what_a_subscription_may_bring_is_bound_to_its_name(self) -> None:
        topics, pushes = local_values()["topics"], local_values()["pushes"]
        fed = {
            f"{topics[key]}-push"
            for key, one in pushes.items()
            if one["function"] == "react_to_event"
        }
        local = {f"{topic}-push" for topic, name in PUSHED.items() if name == "react-to-event"}
        assert fed == local == set(KINDS)

    def test_push_subscription_retries_within_bounds(self) -> None:
        (retry,) = PUSHES["retry_policy"]
        assert retry == {"minimum_backoff": "10s", "maximum_backoff": "600s"}

    @pytest.mark.parametrize("name", sorted(resources()["google_pubsub_subscription"]))
    def test_subscription_never_expires(self, name: str) -> None:
        subscription = resources()["google_pubsub_subscription"][name]
        assert subscription["expiration_policy"] == [{"ttl": ""}]

    def test_every_push_has_a_dead_letter_subscription(self) -> None:
        dead = resources()["google_pubsub_subscription"]["dead"]
        assert dead["for_each"] == "${local.dead}"
        assert "keys(local.pushes)" in local_values()["dead"]
        assert dead["message_retention_duration"] == f"{31 * DAYS}s"

    @pytest.mark.parametrize(
        ("kind", "name", "role"),
        [
            ("google_pubsub_topic_iam_member", "dead_publisher", "roles/pubsub.publisher"),
            (
                "google_pubsub_subscription_iam_member",
                "dead_subscriber",
                "roles/pubsub.subscriber",
            ),
            (
                "google_service_account_iam_member",
                "push_token",
                "roles/iam.serviceAccountOpenIdTokenCreator",
            ),
        ],
    )
    def test_pubsub_agent_may_bury_and_sign(self, kind: str, name: str, role: str) -> None:
        grant = resources()[kind][name]
        assert (grant["role"], grant["member"]) == (role, "${local.pubsub_agent}")

    def test_ack_deadline_is_the_functions_timeout(self) -> None:
        (service,) = resources()["google_cloudfunctions2_function"]["function"]["service_config"]
        assert PUSHES["ack_deadline_seconds"] >= service["timeout_seconds"]

    def test_topics_are_those_the_library_publishes_to(self) -> None:
        settings = Settings(project="p", region="r")
        made = {*local_values()["topics"].values(), "lustrum-dead-letters"}
        used = {
            settings.requests_topic,
            settings.events_topic,
            settings.notifications_topic,
            settings.dead_letter_topic,
        }
        assert used <= made
        assert '"lustrum-dead-letters"' in (TERRAFORM / "pubsub.tf").read_text()

    def test_build_notices_come_from_the_topic_google_names(self) -> None:
        assert local_values()["topics"]["builds"] == "cloud-builds"


class TestSchedules:
    def test_cron_run_sends_the_static_attributes_of_its_key(self) -> None:
        (target,) = resources()["google_cloud_scheduler_job"]["run"]["pubsub_target"]
        assert set(target["attributes"]) == {"schedule", "cron", "tz"}
        job = resources()["google_cloud_scheduler_job"]["run"]
        # start_run computes the tick from them: they must be what Scheduler fires by
        assert target["attributes"]["cron"] == job["schedule"]
        assert target["attributes"]["tz"] == job["time_zone"]

    def test_reaper_comes_every_ten_minutes_with_a_token(self) -> None:
        reaper = resources()["google_cloud_scheduler_job"]["reaper"]
        assert reaper["schedule"] == "*/10 * * * *"
        (target,) = reaper["http_target"]
        assert target["oidc_token"][0]["audience"] == target["uri"]
        assert 'function["reap_runs"]' in target["uri"]


class TestAlerts:
    def test_monitoring_agent_may_publish_before_any_policy_exists(self) -> None:
        grant = resources()["google_pubsub_topic_iam_member"]["monitoring"]
        assert grant["role"] == "roles/pubsub.publisher"
        assert "@gcp-sa-monitoring-notification.iam.gserviceaccount.com" in grant["member"]
        assert grant["topic"] == '${google_pubsub_topic.topic["alerts"].id}'
        assert grant["depends_on"] == ["${google_monitoring_notification_channel.lustrum}"]
        policy = resources()["google_monitoring_alert_policy"]["policy"]
        assert policy["depends_on"] == ["${google_pubsub_topic_iam_member.monitoring}"]

    @pytest.mark.parametrize("name", sorted(local_values()["policies"]))
    def test_policy_carries_an_action_that_react_to_event_knows(self, name: str) -> None:
        AlertAction(local_values()["policies"][name]["action"])

    def test_action_travels_in_the_label_that_react_to_event_reads(self) -> None:
        policy = resources()["google_monitoring_alert_policy"]["policy"]
        assert policy["user_labels"] == {ACTION_LABEL: "${each.value.action}"}

    def test_each_failure_that_must_be_seen_has_its_policy(self) -> None:
        actions = {name: p["action"] for name, p in local_values()["policies"].items()}
        assert actions["lustre-80"] == "prune"
        assert actions["lustre-95"] == "stop"
        for name in ("dead-letters", "reaper-silent", "past-deadline"):
            assert actions[name] == "page"
        assert "writes-stalled" in actions

    def test_policies_can_be_made_before_the_first_instance(self) -> None:
        (condition,) = resources()["google_monitoring_alert_policy"]["policy"]["conditions"]
        (query,) = condition["condition_prometheus_query_language"]
        assert query["disable_metric_validation"] is True

    def test_stalled_writes_are_an_absence_on_an_instance_that_exists(self) -> None:
        query = local_values()["lustre_stalled"]
        exists, wrote, writes = re.split(r"\n\s+(?:and|unless) on", query)
        assert "instance_capacity_bytes" in exists
        assert "[6h]" in wrote and "write_bytes_total" in wrote
        assert "[45m]" in writes and "write_bytes_total" in writes

    @pytest.mark.parametrize("name", ["lustre_used", "lustre_stalled"])
    def test_lustre_alert_names_the_run_and_only_runs(self, name: str) -> None:
        query = local_values()[name]
        assert '"lustrum_run", "$1", "instance_id"' in query
        metrics = query.count("lustre_googleapis_com:")
        assert metrics and query.count("instance_id=~") == metrics

    def test_dashboard_shows_throughput_and_capacity(self) -> None:
        board = json.loads((TERRAFORM / "dashboard.json").read_text())
        queries = " ".join(re.findall(r'"prometheusQuery": "(.*)"', json.dumps(board, indent=1)))
        for metric in ("write_bytes_total", "read_bytes_total", "capacity_bytes"):
            assert f"lustre_googleapis_com:instance_{metric}" in queries


class TestWorkflowFiles:
    @pytest.mark.parametrize("name", ["rl_run", "teardown"])
    def test_deployed_text_is_the_file(self, name: str) -> None:
        workflow = resources()["google_workflows_workflow"]["workflow"]
        assert workflow["source_contents"] == (
            '${file("${path.module}/../../workflows/${each.key}.yaml")}'
        )
        assert name in local_values()["workflow_names"]
        path = TERRAFORM / ".." / ".." / "workflows" / f"{name}.yaml"
        assert "main" in yaml.safe_load(path.read_text())
        assert path.stat().st_size <= 128 * 1024  # the service's limit

    def test_workflow_names_are_those_the_library_starts(self) -> None:
        settings = Settings(project="p", region="r")
        assert {settings.life_workflow, settings.teardown_workflow} == set(
            local_values()["workflow_names"].values()
        )

    def test_workflow_does_not_trap_a_destroy(self) -> None:
        workflow = resources()["google_workflows_workflow"]["workflow"]
        assert workflow["deletion_protection"] is False


class TestReaperLog:
    def test_alert_on_overdue_runs_matches_what_the_reaper_says(self) -> None:
        metric = resources()["google_logging_metric"]["past_deadline"]
        pattern = re.search(r'message=~"([^"]+)"', metric["filter"])
        assert pattern is not None
        assert set(metric["label_extractors"]) == {"lustrum_run"}
        assert "sum by (lustrum_run)" in local_values()["policies"]["past-deadline"]["query"]
        source = (TERRAFORM.parents[1] / "shared/lustrum/handlers/reaping.py").read_text()
        for phrase in pattern.group(1).split("|"):
            assert phrase in source
        assert "reap_runs" in (TERRAFORM.parents[1] / "functions/reap_runs/main.py").read_text()
