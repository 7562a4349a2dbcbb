"""What every test gets: one thread per process, no network, and the places of optional data."""

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

# Before torch and tokenizers are imported by any test: they read these once.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run in parallel processes; more threads make them slower
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import pytest

# A shell starts background jobs with Ctrl-C ignored, and children inherit that; tests of Ctrl-C need what users have.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def glue_folder() -> Path:
    """GLUE's TSV files (SST-2/train.tsv, ...), which cannot be part of the repository."""
    folder = os.environ.get("BIBERT_GLUE")
    if not folder:
        pytest.skip("set BIBERT_GLUE to a folder of GLUE's TSV files to run this")
    return Path(folder)


@pytest.fixture(scope="session")
def save_untrained() -> Callable[..., Path]:
    """A function that writes a two-layer BERT with random weights, and a tokenizer of the words of `texts`."""

    def save(folder: Path, texts: Iterable[str], **config: Any) -> Path:
        import torch  # not every test needs it

        from bibert.data.tokenizer import train_tokenizer
        from bibert.nn.config import BiBertConfig
        from bibert.nn.model import BiBertForSequenceClassification

        tokenizer = train_tokenizer(texts)
        torch.manual_seed(0)
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        model = BiBertForSequenceClassification(BiBertConfig(vocab_size=len(tokenizer), **shape | config))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save
