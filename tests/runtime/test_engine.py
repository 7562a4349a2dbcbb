"""The engine gives the bits of the reference in any batch, and an error with the numbers for bad input."""

import gc
import os
import pickle
import re
import signal
import threading
import time
import weakref

import numpy as np
import pytest

from bibert.errors import EngineError, ModelFileError
from bibert.runtime import reference
from bibert.runtime.engine import Encoded, Engine, available_isas

DRAW = np.random.default_rng(0)
IDS = DRAW.integers(0, 60, (6, 20))
TYPES = DRAW.integers(0, 2, (6, 20))
MASK = (DRAW.random((6, 20)) < 0.7).astype(int)
MASK[:, 0] = 1


@pytest.fixture(scope="module")
def packed(new_packed):
    return new_packed()


@pytest.fixture
def engine(packed):
    return Engine.from_packed(packed)


def same_bits(found, expected):
    return found.dtype == expected.dtype == np.float32 and found.tobytes() == expected.tobytes()


@pytest.fixture
def changed(packed, with_tensors):
    """A function: the model with other numbers at a place of one tensor."""

    def change(name, place, value):
        tensor = packed.tensor(name).copy()
        tensor[place] = value
        return with_tensors(packed, {name: tensor})

    return change


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16", "int8"])
def test_the_logits_are_those_of_the_reference(packed, isa, dtype):
    engine = Engine.from_packed(packed, threads=2, isa=isa)
    found = engine.logits(IDS.astype(dtype), MASK.astype(dtype), TYPES.astype(dtype))
    assert same_bits(found, reference.logits(packed, IDS, MASK, TYPES))
    assert engine.isa == isa


def test_a_mask_may_be_boolean_and_none_means_no_padding_and_types_of_zero(engine):
    assert same_bits(engine.logits(IDS, MASK.astype(bool)), engine.logits(IDS, MASK))
    assert same_bits(engine.logits(IDS), engine.logits(IDS, np.ones_like(IDS), np.zeros_like(IDS)))
    mixed = [Encoded(IDS[0]), Encoded(IDS[1], np.zeros(20, dtype=np.int32))]
    assert same_bits(engine.logits_of(mixed), engine.logits(IDS[:2]))


def test_masked_tokens_are_left_out_but_keep_their_places(engine, packed):
    holes = np.ones((1, 20), dtype=int)
    holes[0, 3:9] = 0
    assert same_bits(engine.logits(IDS[:1], holes), reference.logits(packed, IDS[:1], holes))
    closed_up = engine.logits(IDS[:1, [0, 1, 2, *range(9, 20)]])
    assert not same_bits(engine.logits(IDS[:1], holes), closed_up)


def test_ragged_sequences_give_what_padded_rows_give(engine):
    lengths = (1, 20, 7, 13)
    mask = (np.arange(20) < np.array(lengths)[:, None]).astype(int)
    ragged = [Encoded(IDS[row, :length], TYPES[row, :length]) for row, length in enumerate(lengths)]
    assert same_bits(engine.logits_of(ragged), engine.logits(IDS[:4], mask, TYPES[:4]))


@pytest.mark.parametrize("nothing", [[], np.empty((0, 20), dtype=int), np.empty((0, 0))])
def test_an_empty_batch_has_an_empty_answer(engine, packed, nothing):
    assert engine.logits(nothing).shape == reference.logits(packed, nothing).shape == (0, 3)
    assert engine.logits_of([]).shape == (0, 3)


BAD = {
    "one dimension": (([1, 2],), r"input_ids: has shape \(2,\)"),
    "rows of different lengths": (([[1], [2, 3]],), "input_ids: rows differ in length.*attention_mask"),
    "rows without a token": ((np.empty((2, 0), dtype=int),), r"input_ids: has shape \(2, 0\).* 1 to 64"),
    "rows that are too long": ((np.ones((1, 65), dtype=int),), r"input_ids: has shape \(1, 65\).* 1 to 64"),
    "numbers with a point": (([[1.5]],), "input_ids: holds float64"),
    "texts": (([["a"]],), "input_ids: holds <U1"),
    "an id that 32 bits cannot hold": (([[2**40]],), "input_ids: .*1099511627776.* 32 bits"),
    "an id outside of the vocabulary": ((IDS + 1000,), r"token 0\b.* 10\d\d, must be from 0 to"),
    "a negative id": ((-1 - IDS,), r"token 0\b.* -\d+, must be from 0"),
    "a mask of another shape": ((IDS, MASK[:, 1:]), r"attention_mask: .*\(6, 19\).*\(6, 20\)"),
    "a mask with other numbers": ((IDS, MASK * 3), "attention_mask: holds 0 to 3"),
    "a masked first token": ((IDS, 1 - MASK), "attention_mask: row 0 .*first token"),
    "types of another shape": ((IDS, None, TYPES[1:]), r"token_type_ids: .*\(5, 20\).*\(6, 20\)"),
    "a type the model does not have": ((IDS, None, np.full_like(TYPES, 2)), r"token 0\b.* 2, must be from 0 to 1"),
}


@pytest.mark.parametrize("run", ["engine", "reference"])
@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_input_that_does_not_fit_is_refused_with_its_numbers(engine, packed, run, arguments, message):
    with pytest.raises(EngineError, match=message):
        engine.logits(*arguments) if run == "engine" else reference.logits(packed, *arguments)


BAD_SEQUENCES = {
    "no tokens": (Encoded(IDS[0, :0]), r"sequence 1\b.* 0 tokens.* 1 to 64"),
    "too many tokens": (Encoded(np.ones(65, dtype=np.int32)), r"sequence 1\b.* 65 tokens"),
    "fewer types than ids": (Encoded(IDS[0], TYPES[0, 1:]), r"sequence 1: .*\(20,\).*\(19,\)"),
    "a negative id": (Encoded(np.where(np.arange(20) == 3, -1, IDS[0])), r"sequence 1, token 3\b.* -1, must be"),
    "a matrix": (Encoded(IDS[:1]), r"sequence 1: .*\(1, 20\)"),
    "an empty matrix": (Encoded(np.zeros((3, 0), dtype=np.int32)), r"sequence 1: .*\(3, 0\)"),
    "a number": (Encoded(np.int32(1)), r"sequence 1: .*\(\)"),
    "a matrix of types": (Encoded(IDS[0], TYPES[:1]), r"sequence 1: .*\(20,\).*\(1, 20\)"),
}


@pytest.mark.parametrize(("sequence", "message"), BAD_SEQUENCES.values(), ids=BAD_SEQUENCES.keys())
def test_a_bad_sequence_is_refused_with_its_number(engine, sequence, message):
    with pytest.raises(EngineError, match=message):
        engine.logits_of([Encoded(IDS[0]), sequence])


@pytest.mark.parametrize("threads", [-1, 1.0, True, "2", 10**9])
def test_an_invalid_number_of_threads_is_refused(packed, threads):
    with pytest.raises(EngineError, match=rf"threads is {threads!r}.* 0 .* 256"):
        Engine.from_packed(packed, threads=threads)


def test_the_isa_comes_from_the_argument_or_the_environment(packed, monkeypatch):
    best = available_isas()[0]
    monkeypatch.setenv("BIBERT_ISA", "reference")
    assert Engine.from_packed(packed).isa == "reference"
    assert Engine.from_packed(packed, isa=best).isa == best
    monkeypatch.setenv("BIBERT_ISA", "sse")
    with pytest.raises(EngineError, match=r"BIBERT_ISA is 'sse'.*reference"):
        Engine.from_packed(packed)
    assert Engine.from_packed(packed, isa="reference").isa == "reference"
    monkeypatch.delenv("BIBERT_ISA")
    assert Engine.from_packed(packed).isa == best


@pytest.mark.parametrize("isa", ["mmx", "", "avx2\0", "\u00e4", 3])
def test_an_unknown_isa_is_refused(packed, isa):
    with pytest.raises(EngineError, match=rf"isa is {re.escape(repr(isa))}, .*reference"):
        Engine.from_packed(packed, isa=isa)


def test_a_file_is_loaded(model_file, engine):
    assert same_bits(Engine.load(model_file).logits(IDS), engine.logits(IDS))
    with pytest.raises(ModelFileError, match=r"no\.bibert: no such file"):
        Engine.load(model_file.with_name("no.bibert"))


def test_the_weights_may_be_freed_once_the_engine_has_them(new_packed):
    packed = new_packed(seed=3)
    engine = Engine.from_packed(packed)
    expected, gone = engine.logits(IDS), weakref.ref(packed)
    del packed
    gc.collect()
    assert gone() is None
    assert same_bits(engine.logits(IDS), expected)


def test_a_closed_engine_is_refused_and_closing_twice_is_fine(packed):
    with Engine.from_packed(packed) as engine:
        engine.logits(IDS)
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.logits(IDS)
    with pytest.raises(EngineError, match="closed"):
        engine.logits_of([Encoded(IDS[0])])


def test_threads_share_an_engine_and_one_may_close_it(packed):
    engine = Engine.from_packed(packed, threads=2)
    expected, answers, stopped = engine.logits(IDS), [], []

    def work():
        try:
            while True:
                answers.append(engine.logits(IDS))
        except EngineError as error:
            stopped.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(answers) < 50:
        time.sleep(0.001)
    engine.close()
    for thread in threads:
        thread.join()
    assert all(same_bits(answer, expected) for answer in answers)
    assert len(stopped) == 4
    assert all("closed" in message for message in stopped)


def test_an_engine_says_why_it_is_not_pickled(engine):
    with pytest.raises(EngineError, match=r"pickled; .*path"):
        pickle.dumps(engine)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_fork_can_use_the_engine(packed):
    engine = Engine.from_packed(packed, threads=2)
    expected = engine.logits(IDS)
    child = os.fork()
    if child == 0:
        os._exit(0 if same_bits(engine.logits(IDS), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_fork_loads_a_model_while_the_parent_was_loading_one(packed):
    done = threading.Event()

    def load_again_and_again():
        while not done.is_set():
            Engine.from_packed(packed, isa="reference")

    loading = threading.Thread(target=load_again_and_again)
    loading.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a child that waits for ever ends by this
                Engine.from_packed(packed, isa="reference")
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        done.set()
        loading.join()
