"""The program in this process, and a tiny untrained student as a folder and as a packed file."""

import pytest

from bibert.cli.app import run
from bibert.data.synthetic import synthetic_reviews


@pytest.fixture(scope="session")
def bibert():
    """The exit code of `bibert ...`."""

    def call(*words):
        try:
            return run([str(word) for word in words])
        except SystemExit as leaving:
            return int(leaving.code or 0)

    return call


@pytest.fixture(scope="session")
def student(tmp_path_factory, save_untrained):
    """The folder of a 1-1-1 student with Bi-Attention."""
    names = {0: "negative", 1: "positive"}
    labels = {"id2label": names, "label2id": {name: label for label, name in names.items()}}
    texts = synthetic_reviews(200, 20, seed=0).train.texts
    folder = tmp_path_factory.mktemp("student")
    return save_untrained(folder, texts, scheme="bibert", max_position_embeddings=64, **labels)


@pytest.fixture(scope="session")
def packed_file(student, tmp_path_factory):
    """The same as one file."""
    from bibert.export import pack
    from bibert.nn.loading import load_classifier
    from bibert.packed.file import save

    path = tmp_path_factory.mktemp("packed") / "student.bibert"
    save(pack(load_classifier(student), max_length=32), path)
    return path
