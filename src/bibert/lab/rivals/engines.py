"""The rivals: a BERT in torch, ONNX Runtime and OpenVINO, in float32 and int8, each at its best settings.

A rival writes its file with `build`, for any batch and length, and reads it with `load`. Packages are imported on use.
The time of a forward pass does not depend on the values, so random weights and ids are enough to compare speed.
"""

import importlib.util
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bibert.errors import BibertError, did_you_mean
from bibert.nn.packable import CONFIG_KEYS
from bibert.packed.schema import PackedConfig

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]
Run = Callable[[Ids, Ids], Logits]  # token ids and attention mask, (batch, length) each, to logits (batch, labels)

OURS = "bibert"
INPUTS = ("input_ids", "attention_mask")  # names of the arguments of `Run` in a BERT
CALIBRATION_LENGTHS = (128, 64, 32, 16, 8)
CALIBRATION_BATCHES = 30


class Shape(NamedTuple):
    """Texts per batch and tokens per text, written 8x128."""

    batch: int
    length: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.length}"

    @classmethod
    def parse(cls, word: str) -> "Shape":
        """Read a shape as `str` writes it; anything else raises BibertError."""
        found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", word, flags=re.ASCII)
        if found is None:
            raise BibertError(f"shape {word!r}: write texts x tokens as two whole numbers from 1 up, such as 8x128")
        return cls(int(found[1]), int(found[2]))


def random_batch(shape: Shape, vocabulary: int, seed: int = 0) -> tuple[Ids, Ids]:
    """Random token ids and a mask of ones: no engine has to compute padding."""
    ids = np.random.default_rng(seed).integers(vocabulary, size=shape, dtype=np.int64)
    return ids, np.ones_like(ids)


@dataclass(frozen=True)
class Blueprint:
    """The BERT that every rival is built from, here with random weights. It is sent to the process that builds."""

    config: PackedConfig

    def bert(self) -> Any:
        """A `BertForSequenceClassification` of transformers in eval mode, which every tool can convert."""
        config = self.config
        if config.inner != config.hidden:  # which that class cannot express
            raise BibertError(
                f"{config.heads} heads of {config.head_size} make {config.inner} channels, the attention of a rival "
                f"needs {config.hidden}, its hidden size; compare a model whose heads fill it"
            )
        import torch
        from transformers import BertConfig, BertForSequenceClassification

        torch.manual_seed(0)
        sizes = {key: getattr(config, name) for name, key in CONFIG_KEYS.items()}
        # Nothing here is padding, and a small vocabulary may not have the id of BERT's.
        return BertForSequenceClassification(BertConfig(**sizes, num_labels=config.labels, pad_token_id=None)).eval()

    def example_inputs(self) -> dict[str, Any]:
        """Tensors for tools that trace a BERT through one call.

        No axis is 1, which a tool would take for a constant, and no tensor is passed twice, which it would merge.
        """
        import torch

        batch = random_batch(Shape(2, min(16, self.config.positions)), self.config.vocabulary)
        return {name: torch.from_numpy(values) for name, values in zip(INPUTS, batch, strict=True)}

    def calibration(self) -> Iterator[tuple[Ids, Ids]]:
        """Batches of one text to choose the ranges of int8 with."""
        lengths = [min(length, self.config.positions) for length in CALIBRATION_LENGTHS]
        for seed, length in enumerate(islice(cycle(lengths), CALIBRATION_BATCHES)):
            yield random_batch(Shape(1, length), self.config.vocabulary, seed)


@dataclass(frozen=True)
class Rival:
    """An engine that runs a BERT."""

    name: str  # on the command line, and the stem of its files
    packages: tuple[str, ...]  # that it imports; pip knows them by the same names
    suffix: str  # of the file to load
    write: Callable[[Blueprint, Path], None]  # that file, and others of its stem
    load: Callable[[Path, int], Run]  # with a number of threads, for inputs of one shape
    load_for_texts: Callable[[Path, int], Run] | None = None  # for inputs of changing shapes, if another way is better

    @property
    def missing(self) -> tuple[str, ...]:
        """The packages that are not installed."""
        return tuple(name for name in self.packages if importlib.util.find_spec(name) is None)

    def build(self, blueprint: Blueprint, folder: Path) -> Path:
        """Write its file into a folder, unless another rival that starts from it has done so."""
        path = folder / f"{self.name}{self.suffix}"
        if not path.exists():
            self.write(blueprint, path)
        return path

    def bytes_in(self, folder: Path) -> int:
        """Bytes of its files in the folder it was built in."""
        return sum(file.stat().st_size for file in folder.glob(f"{self.name}.*"))


def _inputs(ids: Ids, mask: Ids) -> dict[str, Ids]:
    return dict(zip(INPUTS, (ids, mask), strict=True))


def _write_torch(blueprint: Blueprint, path: Path) -> None:
    from safetensors.torch import save_model

    model = blueprint.bert()
    save_model(model, str(path))
    model.config.to_json_file(path.with_suffix(".json"))


def _load_torch(path: Path, threads: int) -> Run:
    from safetensors.torch import load_model
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig.from_json_file(path.with_suffix(".json")))
    load_model(model, path)
    return _run_torch(model.eval(), threads)


def _write_torch_int8(blueprint: Blueprint, path: Path) -> None:
    """Write the module with linear layers that are quantized to int8 at run time, as torch prefers on this CPU."""
    import torch

    with warnings.catch_warnings(action="ignore"):  # torch deprecates this function; it is still its int8
        quantize: Any = torch.ao.quantization.quantize_dynamic
        torch.save(quantize(blueprint.bert(), {torch.nn.Linear}, dtype=torch.qint8), path)


def _load_torch_int8(path: Path, threads: int) -> Run:
    """Read a module that this process or its child wrote; never load a file from elsewhere like this."""
    import torch

    with warnings.catch_warnings(action="ignore"):  # quantized tensors are deprecated too
        return _run_torch(torch.load(path, weights_only=False), threads)


def _run_torch(model: Any, threads: int) -> Run:
    import torch

    torch.set_num_threads(threads)  # for all of torch in this process

    @torch.inference_mode()
    def run(ids: Ids, mask: Ids) -> Any:
        tensors = {name: torch.from_numpy(values) for name, values in _inputs(ids, mask).items()}
        return model(**tensors).logits.numpy()

    return run


def _write_onnx(blueprint: Blueprint, path: Path) -> None:
    import torch

    model = blueprint.bert()
    model.set_attn_implementation("eager")  # ONNX Runtime runs the graph of the fused one up to 10 % slower
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=blueprint.config.positions)}
    torch.onnx.export(
        model,
        kwargs=blueprint.example_inputs(),
        f=path,
        dynamo=True,
        external_data=False,
        input_names=INPUTS,
        output_names=["logits"],
        dynamic_shapes=dict.fromkeys(INPUTS, axes),
    )


def _write_onnx_int8(blueprint: Blueprint, path: Path) -> None:
    """Write the graph with int8 weights, a scale per output row; activations are quantized at run time.

    7 of the 8 bits are used, as ONNX Runtime advises for CPUs without VNNI, whose 16-bit sums would saturate.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(RIVALS["onnx-fp32"].build(blueprint, path.parent))
    del graph.graph.value_info[:]  # the exporter's shapes contradict those that onnx infers, which stops the quantizer
    quantize_dynamic(graph, path, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)


def _load_onnx(path: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    return lambda ids, mask: session.run(["logits"], _inputs(ids, mask))[0]


def _write_openvino(blueprint: Blueprint, path: Path) -> None:
    import openvino

    model = blueprint.bert()
    model.config.return_dict = False  # the converter traces a module that returns a tensor
    converted = openvino.convert_model(model, example_input=blueprint.example_inputs())
    openvino.save_model(converted, path, compress_to_fp16=False)


def _write_openvino_int8(blueprint: Blueprint, path: Path) -> None:
    """Write the model with int8 weights and activations, quantized by NNCF with its preset for transformers."""
    import nncf
    import openvino

    model = openvino.Core().read_model(RIVALS["openvino-fp32"].build(blueprint, path.parent))
    batches = [_inputs(*batch) for batch in blueprint.calibration()]
    settings = {"model_type": nncf.ModelType.TRANSFORMER, "subset_size": len(batches)}
    openvino.save_model(nncf.quantize(model, nncf.Dataset(batches), **settings), path)


def _load_openvino(path: Path, threads: int, one_shape: bool = True) -> Run:
    """Compile at the first call, and for `one_shape` again whenever the shape of the input changes.

    Static shapes run up to 6 % faster, but compiling takes seconds.
    """
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # a pinned thread cannot leave a core that another program uses
    }
    if path.stem.endswith("fp32"):
        settings["INFERENCE_PRECISION_HINT"] = "f32"  # a CPU that has bfloat16 would compute in it
    compiled: dict[tuple[int, ...], Any] = {}

    def run(ids: Ids, mask: Ids) -> Any:
        shape = ids.shape if one_shape else ()
        if shape not in compiled:
            compiled.clear()  # each compiled model has its own copy of the weights
            model = core.read_model(path)
            if one_shape:
                model.reshape({name: list(shape) for name in INPUTS})
            compiled[shape] = core.compile_model(model, "CPU", settings).create_infer_request()
        return compiled[shape].infer(_inputs(ids, mask), share_inputs=True)[0]

    return run


_TORCH = ("torch", "transformers")
_ONNX = (*_TORCH, "onnx", "onnxscript", "onnxruntime")
_OPENVINO = (*_TORCH, "openvino")
_OPENVINO_FOR_TEXTS = partial(_load_openvino, one_shape=False)
_RIVALS = (
    Rival("torch-fp32", _TORCH, ".safetensors", _write_torch, _load_torch),
    Rival("torch-int8", _TORCH, ".pt", _write_torch_int8, _load_torch_int8),
    Rival("onnx-fp32", _ONNX, ".onnx", _write_onnx, _load_onnx),
    Rival("onnx-int8", _ONNX, ".onnx", _write_onnx_int8, _load_onnx),
    Rival("openvino-fp32", _OPENVINO, ".xml", _write_openvino, _load_openvino, _OPENVINO_FOR_TEXTS),
    Rival("openvino-int8", (*_OPENVINO, "nncf"), ".xml", _write_openvino_int8, _load_openvino, _OPENVINO_FOR_TEXTS),
)
RIVALS: Mapping[str, Rival] = {rival.name: rival for rival in _RIVALS}


def load_engine(name: str, path: Path, threads: int) -> Run:
    """Load the file of a rival, or a packed file with our own engine."""
    if name != OURS:
        return RIVALS[name].load(path, threads)
    from bibert.runtime.engine import Engine  # not in the process of a rival, whose memory is measured

    return Engine.load(path, threads=threads).logits


def get_rivals(names: Iterable[str]) -> tuple[Rival, ...]:
    """The rivals of these names, each once; all of them for no name. An unknown name raises BibertError."""
    wanted = tuple(dict.fromkeys(names)) or tuple(RIVALS)
    for name in wanted:
        if name not in RIVALS:
            raise BibertError(f"there is no rival {name!r}; {did_you_mean(name, RIVALS)}")
    return tuple(RIVALS[name] for name in wanted)
