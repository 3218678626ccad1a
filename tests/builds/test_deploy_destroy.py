"""The real build file against the stand-in cloud: once, never late, and nothing left in the
end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from infra.local.builds import objects
from infra.local.builds.rest import call
from tests.builds.conftest import BUCKET, PROJECT, RUN, ZONE, Builds

STATE = f"gs://{BUCKET}/{RUN}/z1"
MARKS = f"gs://{BUCKET}/builds/{RUN}/z1"
LOST = "Error: Error waiting to create Instance: timeout while waiting for state to become 'done'"


def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Poll until a condition holds; fail loudly when it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.02)


class TestDeploy:
    def test_deploy_creates_what_the_blueprint_says(self, builds: Builds) -> None:
        build, result = builds.run()
        assert (build["status"], result["ok"], result["class"]) == ("SUCCESS", True, None)
        with builds.cloud.state.lock:
            cluster = builds.cloud.state.clusters["us-east1", RUN].message
            instance = builds.cloud.state.instances[
                f"projects/{PROJECT}/locations/{ZONE}/instances/{RUN}"
            ]
        wanted = {"lustrum-run": RUN, "lustrum-expires": "1798761600", "managed-by": "lustrum"}
        assert wanted.items() <= dict(cluster.resource_labels).items()
        assert wanted.items() <= instance["labels"].items()
        pools = {pool.name: pool for pool in cluster.node_pools}
        assert set(pools) == {"system", "a4"}
        assert (pools["a4"].autoscaling.total_max_node_count, pools["a4"].config.spot) == (8, True)
        assert pools["a4"].initial_node_count == 0
        assert list(pools["system"].locations) == [ZONE]
        assert wanted.items() <= dict(pools["a4"].config.resource_labels).items()
        assert instance["filesystem"] == "lustrefs"
        assert build["tags"] == ["lustrum", RUN, f"{RUN}-deploy-z1"]

    def test_deploy_with_a_reservation(self, builds: Builds) -> None:
        _, result = builds.run(_CAPACITY="reservation", _RESERVATION="b200-block")
        assert result["ok"], result
        with builds.cloud.state.lock:
            cluster = builds.cloud.state.clusters["us-east1", RUN].message
        pool = next(pool for pool in cluster.node_pools if pool.name == "a4")
        assert not pool.config.spot
        assert list(pool.config.reservation_affinity.values) == ["b200-block"]

    def test_deploy_second_build_of_the_attempt_is_a_duplicate(self, builds: Builds) -> None:
        first, _ = builds.run()
        second, result = builds.run()
        assert second["status"] == "FAILURE"
        assert (result["ok"], result["class"], result["duplicate"]) == (False, None, first["id"])
        assert builds.left() == ([RUN], [RUN])

    def test_deploy_five_at_once_are_one(self, builds: Builds) -> None:
        results = [builds.finish(one)[1] for one in [builds.start() for _ in range(5)]]
        assert sum(result["ok"] for result in results) == 1
        assert sum("duplicate" in result for result in results) == 4
        log = (builds.cloud.root / "logs" / "cloud.log").read_text()
        assert log.count("gke CreateCluster") == 1

    def test_deploy_after_a_destroy_began_is_refused(self, builds: Builds) -> None:
        builds.run("destroy")
        build, result = builds.run("deploy")
        assert (build["status"], result["class"]) == ("FAILURE", "CANCELLED")
        assert builds.left() == ([], [])

    def test_deploy_saves_the_folder_before_anything_exists(self, builds: Builds) -> None:
        builds.fail(deploy=[{"fail": "Error: GCE_STOCKOUT"}])
        builds.run()
        assert f"{STATE}/folder.tar.gz" in builds.names()
        assert builds.left() == ([], [])

    def test_deploy_whose_token_ran_out_is_applied_once_more(self, builds: Builds) -> None:
        text = (
            "Error: default/lustre-pvc failed to run apply: Unauthorized\n\n"
            "  with module.lustre-pv.kubectl_manifest.pvc[0],"
        )
        builds.fail(deploy=[{"fail": text, "after": "lustre"}])
        build, result = builds.run()
        assert result["ok"], result
        assert builds.log(build["id"]).count("applying once more") == 1
        builds.run("destroy")
        builds.fail(deploy=[{"fail": text, "after": "all"}] * 2)
        build, result = builds.run(_ZONE_ATTEMPT="2")
        assert result["class"] == "INFRA_TRANSIENT"

    def test_deploy_without_a_right_is_not_applied_again(self, builds: Builds) -> None:
        builds.fail(deploy=[{"fail": "Error: googleapi: Error 401: Unauthorized"}])
        build, result = builds.run()
        assert result["class"] == "ACCESS"
        assert "applying once more" not in builds.log(build["id"])

    def test_deploy_that_exits_well_but_created_nothing_is_not_ok(self, builds: Builds) -> None:
        builds.fail(deploy=[{"pretend": True}])
        build, result = builds.run()
        assert (build["status"], result["class"]) == ("FAILURE", "INFRA_TRANSIENT")
        assert "not both up" in result["message"]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("Error: Error waiting: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "STOCKOUT"),
            ("Error: Quota 'NVIDIA_B200_GPUS' exceeded. Limit: 0.0 in us-east1", "QUOTA"),
            ("Error: googleapi: Error 403: Permission denied on resource", "ACCESS"),
        ],
    )
    def test_deploy_failure_class_reaches_the_result(
        self, builds: Builds, text: str, expected: str
    ) -> None:
        builds.fail(deploy=[{"fail": text, "after": "cluster"}])
        build, result = builds.run()
        assert (build["status"], result["class"]) == ("FAILURE", expected)
        assert text.removeprefix("Error: ")[:40] in result["message"]
        assert any("cluster" in one for one in result["remaining"])
        assert build["failureInfo"]["type"] == "USER_BUILD_STEP"


class TestMisspelt:
    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"_NODES": ""}, "_NODES"),
            ({"_ACTION": "deplyo"}, "_ACTION"),
            ({"_RUN_ID": "rl-1; rm -rf /"}, "_RUN_ID"),
            ({"_CAPACITY": "reservation"}, "_RESERVATION"),
        ],
    )
    def test_build_told_wrong_things_creates_nothing(
        self, builds: Builds, change: dict[str, str], named: str
    ) -> None:
        build, result = builds.run(**change)
        assert (build["status"], result["class"]) == ("FAILURE", "CONFIG")
        assert named in result["message"]
        assert builds.left() == ([], [])

    def test_build_without_scripts_says_so(self, builds: Builds) -> None:
        build, result = builds.run(_SCRIPTS="gs://elsewhere/x.sh")
        assert (build["status"], result["class"]) == ("FAILURE", "CONFIG")
        assert "_SCRIPTS" in result["message"]


class TestDestroy:
    def test_destroy_leaves_nothing_and_drops_the_state(self, builds: Builds) -> None:
        builds.run()
        build, result = builds.run("destroy")
        assert (build["status"], result["ok"], result["remaining"]) == ("SUCCESS", True, [])
        assert builds.left() == ([], [])
        assert not [name for name in builds.names() if name.startswith(STATE)]

    def test_destroy_of_what_never_was_is_ok(self, builds: Builds) -> None:
        _, result = builds.run("destroy")
        assert result["ok"], result

    def test_destroy_interrupts_a_deploy_and_breaks_its_lock(self, builds: Builds) -> None:
        builds.fail(deploy=[{"hang_after": "cluster"}])
        deploy = builds.start()
        until(lambda: "still creating" in builds.log(deploy))
        build, result = builds.run("destroy")
        assert builds.runner.get(deploy)["status"] == "CANCELLED"
        assert result["ok"], builds.log(build["id"])
        assert "breaking it" in builds.log(build["id"])
        assert builds.left() == ([], [])

    def test_destroy_without_the_folder_makes_it_again(self, builds: Builds) -> None:
        builds.run()
        objects.delete(f"{STATE}/folder.tar.gz")
        build, result = builds.run("destroy")
        assert result["ok"], result
        assert "folder is missing" in builds.log(build["id"])
        assert "Destroy complete" in builds.log(build["id"])
        assert builds.left() == ([], [])

    def test_destroy_without_folder_and_settings_sweeps(self, builds: Builds) -> None:
        builds.run()
        objects.delete(f"{STATE}/folder.tar.gz")
        build, result = builds.run("destroy", _NETWORK="", _NODES="eight")
        assert result["ok"], result
        assert "swept by name" in result["message"]
        assert "gcluster destroy" not in builds.log(build["id"])
        assert builds.left() == ([], [])

    def test_destroy_with_lost_state_and_live_things_is_an_error_and_sweeps_a21(
        self, builds: Builds
    ) -> None:
        builds.run()
        objects.delete(f"{STATE}/terraform/default.tfstate")
        build, result = builds.run("destroy")
        assert "ERROR: there was no Terraform state, but this is there" in builds.log(build["id"])
        assert result["ok"], result
        assert builds.left() == ([], [])

    def test_destroy_believes_the_cloud_and_not_the_exit_code_a8(self, builds: Builds) -> None:
        builds.run()
        builds.fail(destroy=[{"leave": ["lustre", "cluster"]}])
        build, result = builds.run("destroy")
        assert "ERROR: terraform said that nothing is left" in builds.log(build["id"])
        assert result["ok"], result
        assert builds.left() == ([], [])

    def test_destroy_after_a_partial_deploy_d5(self, builds: Builds) -> None:
        builds.fail(deploy=[{"fail": "Error: GCE_STOCKOUT", "after": "cluster"}])
        builds.run()
        assert builds.left() == ([RUN], [RUN])
        _, result = builds.run("destroy")
        assert result["ok"], result
        assert builds.left() == ([], [])

    def test_destroy_takes_the_instance_that_appears_late_d9(self, builds: Builds) -> None:
        builds.cloud.faults.add({"operation": "lustre.create", "delay": 3600})
        builds.fail(deploy=[{"give_up": LOST}])
        _, deployed = builds.run()
        assert deployed["class"] == "INFRA_TRANSIENT"
        destroy = builds.start("destroy")
        until(lambda: "CREATING" in builds.log(destroy))
        with builds.cloud.state.lock:
            (instance,) = builds.cloud.state.instances.values()
            instance["state"] = "ACTIVE"
        _, result = builds.finish(destroy)
        assert result["ok"], result
        assert builds.left() == ([], [])

    def test_destroy_of_a_busy_cluster_is_tried_again_a19(self, builds: Builds) -> None:
        builds.run()
        busy = "Error: googleapi: Error 400: Cluster is running incompatible operation, "
        builds.fail(destroy=[{"fail": busy + "FAILED_PRECONDITION"}] * 4)
        build, result = builds.run("destroy")
        assert result["ok"], result
        assert builds.log(build["id"]).count("INFRA_TRANSIENT") == 1
        assert "Destroy complete" in builds.log(build["id"])

    def test_destroy_when_terraform_cannot_a22(self, builds: Builds) -> None:
        builds.run()
        builds.fail(destroy=[{"fail": 'Error: Invalid value for variable "zone"'}] * 9)
        _, result = builds.run("destroy")
        assert result["ok"], result
        assert "terraform could not destroy" in result["message"]
        assert builds.left() == ([], [])

    def test_destroy_when_the_cluster_is_gone_already(self, builds: Builds) -> None:
        builds.run()
        call(
            "container_rest", "DELETE", f"/v1/projects/{PROJECT}/locations/us-east1/clusters/{RUN}"
        )
        until(lambda: builds.left()[0] == [])
        _, result = builds.run("destroy")
        assert result["ok"], result
        assert builds.left() == ([], [])

    def test_destroy_twice_at_once_is_one(self, builds: Builds) -> None:
        builds.run()
        builds.cloud.faults.add({"operation": "gke.DeleteCluster", "delay": 4})
        first = builds.start("destroy")
        until(lambda: f"{MARKS}/destroy.lock" in builds.names())
        _, second = builds.run("destroy")
        assert second["duplicate"] == first
        _, result = builds.finish(first)
        assert result["ok"], result

    def test_destroy_takes_over_from_one_that_died(self, builds: Builds) -> None:
        builds.run()
        builds.cloud.faults.add({"operation": "gke.DeleteCluster", "delay": 5})
        first = builds.start("destroy")
        until(lambda: "cluster: Destroying" in builds.log(first))
        builds.runner.cancel(first)
        build, result = builds.run("destroy")
        assert result["ok"], builds.log(build["id"])
        assert builds.left() == ([], [])

    def test_destroy_of_an_older_attempt_spares_the_present_one(self, builds: Builds) -> None:
        builds.run()
        builds.run("destroy")
        _, second = builds.run("deploy", _ZONE_ATTEMPT="2")
        assert second["ok"], second
        _, late = builds.run("destroy", _ZONE_ATTEMPT="1")
        assert (late["ok"], "zone attempt 2 has begun" in late["message"]) == (False, True)
        assert builds.left() == ([RUN], [RUN])

    def test_destroy_spares_a_name_that_begins_alike_a16(self, builds: Builds) -> None:
        # Run ids have one width; a stranger's cluster may still carry ours as its beginning.
        builds.run()
        parent = f"/v1/projects/{PROJECT}/locations/us-east1/clusters"
        builds.cloud.state.acts_as = None  # a stranger's rights are another's
        stranger = {"cluster": {"name": f"{RUN}0", "initialNodeCount": 1}}
        call("container_rest", "POST", parent, stranger)
        objects.write(f"gs://{BUCKET}/{RUN}0/z1/folder.tar.gz", b"not ours")
        objects.write(f"gs://{BUCKET}/{RUN}/z10/folder.tar.gz", b"another attempt's")
        _, result = builds.run("destroy")
        assert result["ok"], result
        assert builds.left()[0] == [f"{RUN}0"]
        assert f"gs://{BUCKET}/{RUN}0/z1/folder.tar.gz" in builds.names()
        assert f"gs://{BUCKET}/{RUN}/z10/folder.tar.gz" in builds.names()

    def test_destroy_when_the_inventory_has_no_answer_is_not_ok(self, builds: Builds) -> None:
        builds.run()
        builds.cloud.faults.add({"operation": "lustre.get", "status": 403, "text": "denied"})
        env = builds.runner._environment
        env |= {"LUSTRUM_BUILD_SECONDS": "1"}
        build, result = builds.run("destroy")
        assert (build["status"], result["ok"]) == ("FAILURE", False)
        assert any("unknown" in one for one in result["remaining"])
