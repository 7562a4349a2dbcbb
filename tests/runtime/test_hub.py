"""Models on the Hub, with a stand-in for the Hub: what is asked of it, and what a refusal looks like."""

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from bibert.errors import ModelFileError
from bibert.runtime.classifier import find_file, load
from bibert.runtime.hub import fetch, is_hub_id

NAMES = {
    "owner/name": True,
    "owner/name@v1.0": True,
    "owner/na-me_2.x@refs/pr/1": True,
    "name": False,
    "owner/name.bibert": False,
    "a/b/c": False,
    "./a/b": False,
    "/a/b": False,
    "a/b@": False,
    "höher/b": False,
}


@pytest.fixture
def hub(model_file, monkeypatch):
    """Stands in for the Hub: what was asked of it, and what it answers or raises."""

    class Hub:
        asked = ()
        answer = model_file.parent

        def download(self, name, *, tqdm_class, **options):
            self.asked = (name, options)
            assert tqdm_class(total=1).disable
            if isinstance(self.answer, Exception):
                raise self.answer
            return str(self.answer)

    standing_in = Hub()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", standing_in.download)
    return standing_in


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_a_name_on_the_hub_has_an_owner_and_may_have_a_revision(name, expected):
    assert is_hub_id(name) is expected


def test_only_packed_files_are_fetched_and_the_one_is_loaded(hub, model_file):
    assert load("owner/name").labels == ("negative", "neutral", "positive")
    assert hub.asked == ("owner/name", {"revision": None, "allow_patterns": "*.bibert"})
    assert find_file("owner/name@v2") == model_file
    assert hub.asked == ("owner/name", {"revision": "v2", "allow_patterns": "*.bibert"})


def test_a_folder_of_that_name_is_preferred_to_the_hub(hub, model_file, monkeypatch, tmp_path):
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "model.bibert").write_bytes(model_file.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert find_file("owner/name").name == "model.bibert"
    assert hub.asked == ()


def test_a_path_is_never_looked_for_on_the_hub(hub, tmp_path):
    assert find_file(tmp_path / "name") == tmp_path / "name"
    with pytest.raises(ModelFileError, match=r"name\.bibert: there is no such file"):
        load("owner/name.bibert")
    assert hub.asked == ()


def test_a_repository_without_a_packed_file_says_so(hub, tmp_path):
    hub.answer = tmp_path
    with pytest.raises(ModelFileError, match=r"owner/name: has 0 files that end in \.bibert, must have 1"):
        load("owner/name")


@pytest.mark.parametrize(
    "error",
    [
        LocalEntryNotFoundError("cannot find it\non the local disk"),
        OfflineModeIsEnabled("cannot find it"),
        ConnectionError("cannot find it"),
        ValueError("cannot find it"),
        huggingface_hub.errors.HfHubHTTPError.__bases__[0]("cannot find it"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_is_one_line_with_the_name_and_the_reason(hub, error):
    hub.answer = error
    with pytest.raises(ModelFileError, match=r"^owner/name: there is no such file or folder, .* \(cannot find it\)$"):
        fetch("owner/name")


def test_without_a_network_a_name_that_was_never_fetched_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelFileError, match="owner/name: there is no such file or folder"):
        load("owner/name")
