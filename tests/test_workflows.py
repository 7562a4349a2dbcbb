"""The workflows of GitHub: the jobs and make targets they name exist, and they use no secrets."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_names_what_exists(path):
    workflow = yaml.safe_load(path.read_text("utf-8"))
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in path.read_text("utf-8")
    for job in workflow["jobs"].values():
        assert {*job.get("needs", [])} <= {*workflow["jobs"]}
        assert "uses" not in job or (ROOT / job["uses"]).is_file()
        for step in job.get("steps", []):
            assert ("uses" in step) != ("run" in step)
            assert "@" in step.get("uses", "@")
            assert {*re.findall(r"\bmake ([\w-]+)", step.get("run", ""))} <= {*targets}
