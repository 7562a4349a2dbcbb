"""Digests of data and weights; the provenance of a packed run is tested with `bibert pack` and the card."""

from dataclasses import replace

from bibert.data.examples import Split, TextData
from bibert.nn.checkpoint import load_classifier
from bibert.training.provenance import fingerprint, weights_digest
from bibert.training.run import save_classifier


def text_data(train, dev, pairs=False):
    train_split, dev_split = (Split(x, x if pairs else None, (0.0,) * len(x), "test") for x in (train, dev))
    return TextData("test", train_split, {"dev": dev_split}, ("a",), ("accuracy",), "test")


def test_the_fingerprint_sees_every_change_of_the_data():
    variants = [
        text_data(("a", "b"), ("c",)),
        text_data(("a", "b"), ("d",)),
        text_data(("b", "a"), ("c",)),
        text_data(("a",), ("b", "c")),
        text_data(("a", "b"), ("c",), pairs=True),
        *(replace(text_data(("a", "b"), ("c",)), unlabelled=Split(x, None, (0,), "d.txt")) for x in ("d", "e")),
    ]
    assert len({fingerprint(data) for data in variants}) == len(variants)
    assert fingerprint(variants[0]) == fingerprint(text_data(("a", "b"), ("c",)))


def test_the_digest_of_weights_is_that_of_the_content(tmp_path, start):
    digest = weights_digest(start)
    save_classifier(load_classifier(start), tmp_path / "copy")
    assert weights_digest(tmp_path / "copy") == digest
    weights = tmp_path / "copy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    assert weights_digest(tmp_path / "copy") != digest
    assert len({weights_digest(path) for path in (weights, start / "model.safetensors", start / "config.json")}) == 3
    assert weights_digest("bert-base-uncased") is None
