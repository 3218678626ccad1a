"""Cloud Storage, Compute and the admin door by REST."""

from __future__ import annotations

import json

import httpx
import pytest
from google.cloud import container_v1
from lustrum.adapters.google import Rest, Tokens
from lustrum.adapters.project import Project, asker
from lustrum.core.errors import NotFound
from lustrum.core.settings import Settings
from lustrum.doctor.expected_setup import lustre_agent

from infra.local.cloud import Cloud
from tests.local.cloud.support import PROJECT, RUN, make_cluster

OBJECTS = "/storage/v1/b/exports/o"
UPLOAD = "/upload/storage/v1/b/exports/o"
MACHINES = f"/compute/v1/projects/{PROJECT}/aggregated/instances"


def _put(rest: httpx.Client, name: str, content: bytes = b"x", **query: str) -> httpx.Response:
    return rest.post(
        UPLOAD, params={"uploadType": "media", "name": name, **query}, content=content
    )


class TestObjects:
    def test_object_is_written_read_listed_deleted(self, rest: httpx.Client, cloud: Cloud) -> None:
        made = _put(rest, "runs/a/b.txt", b"hello").json()
        path = f"{OBJECTS}/runs%2Fa%2Fb.txt"
        assert rest.get(path, params={"alt": "media"}).content == b"hello"
        assert rest.get(path).json()["generation"] == made["generation"]
        assert (cloud.root / "buckets/exports/runs/a/b.txt").read_bytes() == b"hello"
        assert rest.delete(path).status_code == 204
        assert rest.get(path).status_code == 404

    def test_create_if_absent(self, rest: httpx.Client) -> None:
        assert _put(rest, "lock", b"1", ifGenerationMatch="0").status_code == 200
        assert _put(rest, "lock", b"2", ifGenerationMatch="0").status_code == 412
        generation = rest.get(f"{OBJECTS}/lock").json()["generation"]
        assert _put(rest, "lock", b"3", ifGenerationMatch=generation).status_code == 200
        assert _put(rest, "lock", b"4", ifGenerationMatch=generation).status_code == 412

    def test_multipart_upload_keeps_every_byte(self, rest: httpx.Client) -> None:
        content = b"PK\x03\x04\r\n\r\n--x\n\x00\xff"
        body = (
            b"--bound\r\nContent-Type: application/json\r\n\r\n"
            + json.dumps({"name": "code.zip"}).encode()
            + b"\r\n--bound\r\nContent-Type: application/zip\r\n\r\n"
            + content
            + b"\r\n--bound--\r\n"
        )
        answer = rest.post(
            UPLOAD,
            params={"uploadType": "multipart"},
            content=body,
            headers={"Content-Type": "multipart/related; boundary=bound"},
        )
        assert answer.json()["contentType"] == "application/zip"
        assert rest.get(f"{OBJECTS}/code.zip", params={"alt": "media"}).content == content

    def test_listing_pages_and_folders(self, rest: httpx.Client) -> None:
        for name in ("runs/1/a", "runs/1/b", "runs/2/a", "runs/top", "other"):
            _put(rest, name)
        folder = rest.get(OBJECTS, params={"prefix": "runs/", "delimiter": "/"}).json()
        assert folder["prefixes"] == ["runs/1/", "runs/2/"]
        assert [item["name"] for item in folder["items"]] == ["runs/top"]
        names, token = [], None
        while token != "":
            query = {
                "prefix": "runs/",
                "maxResults": "3",
                **({"pageToken": token} if token else {}),
            }
            page = rest.get(OBJECTS, params=query).json()
            names += [item["name"] for item in page["items"]]
            token = page.get("nextPageToken", "")
        assert names == ["runs/1/a", "runs/1/b", "runs/2/a", "runs/top"]

    @pytest.mark.parametrize("name", ["../state/x", "/abs", "a//b", "a/./b"])
    def test_name_cannot_leave_the_bucket(
        self, rest: httpx.Client, cloud: Cloud, name: str
    ) -> None:
        assert _put(rest, name).status_code == 400
        assert not any(path.is_file() for path in (cloud.root / "buckets").rglob("*"))

    def test_bucket_that_is_not_there(self, rest: httpx.Client) -> None:
        assert rest.get("/storage/v1/b/nobody/o").status_code == 404


class TestMachines:
    def test_nodes_are_machines_with_the_cluster_label(
        self, rest: httpx.Client, cloud: Cloud, gke: container_v1.ClusterManagerClient
    ) -> None:
        make_cluster(gke)
        query = {"filter": f"labels.goog-k8s-cluster-name={RUN}"}
        items = rest.get(MACHINES, params=query).json()["items"]
        machine = items["zones/us-east1-b"]["instances"][0]
        assert machine["labels"]["lustrum-run"] == RUN
        assert machine["status"] == "RUNNING"
        other = rest.get(MACHINES, params={"filter": "labels.goog-k8s-cluster-name=rl-x"}).json()
        assert not any("instances" in scope for scope in other["items"].values())
        cloud.faults.add({"operation": "compute.unreachable", "value": ["us-east1-b"]})
        silent = rest.get(MACHINES, params=query).json()
        assert silent["unreachables"] == ["zones/us-east1-b"]
        assert silent["items"]["zones/us-east1-b"]["warning"]["code"] == "UNREACHABLE"


class TestFaults:
    def test_refusal_lasts_so_many_calls(self, rest: httpx.Client) -> None:
        rule = {"operation": "storage.*", "status": 503, "times": 2, "text": "backend"}
        assert rest.post("/_local/faults", json=rule).status_code == 200
        assert [_put(rest, "a").status_code for _ in range(3)] == [503, 503, 200]

    def test_rule_with_two_effects_is_refused(self, rest: httpx.Client) -> None:
        rule = {"operation": "x", "status": 503, "end": "y"}
        assert rest.post("/_local/faults", json=rule).status_code == 400

    def test_log_has_a_line_for_each_change(self, rest: httpx.Client, cloud: Cloud) -> None:
        _put(rest, "a")
        rest.get(f"{OBJECTS}/a")
        lines = (cloud.root / "logs/cloud.log").read_text().splitlines()
        assert next(line for line in lines if "gs://exports/a" in line).endswith("1 B")
        assert sum("gs://exports/a" in line for line in lines) == 1


class TestPolicy:
    """What a run looks at before it begins, by the adapter that asks."""

    def test_ground_is_good_unless_a_fault_says_otherwise(self, cloud: Cloud) -> None:
        settings = Settings(project=PROJECT, region="us-east1", endpoints=cloud.endpoints)
        project = Project(PROJECT, asker(Rest(settings, Tokens(settings))))
        agent = lustre_agent(project.number())
        assert project.bucket_bindings("exports") == {("roles/storage.objectUser", agent)}
        assert project.bucket_owner("exports") == project.number()
        assert project.project_bindings() == set()
        assert "us-east1-b" in project.machine_zones("a4-highgpu-8g") & project.lustre_zones()
        for operation, value in (
            ("storage.policy", []),
            ("lustre.locations", ["us-west2-c"]),
            ("compute.machine_zones", ["us-east1-c"]),
        ):
            cloud.faults.add({"operation": operation, "value": value})
        assert project.bucket_bindings("exports") == set()
        assert project.lustre_zones() == {"us-west2-c"}
        assert project.machine_zones("a4-highgpu-8g") == {"us-east1-c"}
        with pytest.raises(NotFound):
            project.bucket_bindings("none")
