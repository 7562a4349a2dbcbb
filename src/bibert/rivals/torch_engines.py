"""torch as a rival: the BERT of transformers in float32, and with linear layers quantized to int8 at run time.

A file is the whole module as torch writes it. It is read back by the process that wrote it, or its child; a file from
elsewhere must never be loaded like this.
"""

import warnings
from pathlib import Path
from typing import Any

from bibert.packed.schema import PackedConfig
from bibert.rivals.inputs import Ids, Logits, Run
from bibert.rivals.models import random_bert


def build_fp32(config: PackedConfig, folder: Path) -> Path:
    """Write the float32 model; attention is torch's fused one."""
    return _write(random_bert(config), folder / "torch-fp32.pt")


def build_int8(config: PackedConfig, folder: Path) -> Path:
    """Write the model with int8 linear layers, in the form that torch takes to be best for this CPU."""
    import torch

    with warnings.catch_warnings():
        # torch announces the end of this function; until then it is the int8 that a user of plain torch has.
        warnings.simplefilter("ignore")
        quantize: Any = torch.ao.quantization.quantize_dynamic
        quantized = quantize(random_bert(config), {torch.nn.Linear}, dtype=torch.qint8)
    return _write(quantized, folder / "torch-int8.pt")


def _write(model: Any, path: Path) -> Path:
    import torch

    torch.save(model, path)
    return path


def load(path: Path, threads: int) -> Run:
    """Read a model of this module; the number of threads counts for all of torch in this process."""
    import torch

    torch.set_num_threads(threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same announcement, of quantized tensors
        model = torch.load(path, weights_only=False)

    def run(ids: Ids, mask: Ids) -> Logits:
        with torch.inference_mode():
            output = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
        logits: Logits = output.logits.numpy()
        return logits

    return run
