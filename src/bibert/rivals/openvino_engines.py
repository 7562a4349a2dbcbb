"""OpenVINO as a rival: float32, and int8 weights and activations by NNCF's post-training quantization.

It gets what suits it best: a graph compiled for the very shape it is asked for, the setting for short latency, and the
preset for transformers.
"""

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from bibert.packed.schema import PackedConfig
from bibert.rivals.inputs import Ids, Logits, Run, Shape, random_batch
from bibert.rivals.models import INPUTS, example_inputs, random_bert

CALIBRATION_LENGTHS = (128, 64, 32, 16, 8)
CALIBRATION_BATCHES = 30


def build_fp32(config: PackedConfig, folder: Path) -> Path:
    """Write the float32 model for any batch and length, unless `folder` has it already."""
    import openvino

    path = folder / "openvino-fp32.xml"
    if not path.exists():
        model = openvino.convert_model(_logits_only(random_bert(config)), example_input=example_inputs(config))
        openvino.save_model(model, path, compress_to_fp16=False)
    return path


def _logits_only(model: Any) -> Any:
    """The converter traces a module that returns a tensor, not transformers' named output."""
    model.config.return_dict = False
    return model


def build_int8(config: PackedConfig, folder: Path) -> Path:
    """Write the model quantized to int8, with ranges taken from random texts of several lengths."""
    import nncf
    import openvino

    model = openvino.Core().read_model(build_fp32(config, folder))
    quantized = nncf.quantize(
        model,
        nncf.Dataset(list(_calibration(config))),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=CALIBRATION_BATCHES,
    )
    path = folder / "openvino-int8.xml"
    openvino.save_model(quantized, path)
    return path


def _calibration(config: PackedConfig) -> Iterator[dict[str, Ids]]:
    lengths = [min(length, config.positions) for length in CALIBRATION_LENGTHS]
    for seed, length in enumerate(islice(cycle(lengths), CALIBRATION_BATCHES)):
        yield dict(zip(INPUTS, random_batch(Shape(1, length), config.vocabulary, seed), strict=True))


def load_fp32(path: Path, threads: int) -> Run:
    """Make the float32 model ready; without the hint a CPU that has bfloat16 would compute in that."""
    return _load(path, {**_settings(threads), "INFERENCE_PRECISION_HINT": "f32"})


def load_int8(path: Path, threads: int) -> Run:
    """Make the int8 model ready."""
    return _load(path, _settings(threads))


def _settings(threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # a pinned thread cannot leave a core that the machine's other work has taken
    }


def _load(path: Path, settings: dict[str, Any]) -> Run:
    """The model is compiled anew whenever the shape of the input changes: static shapes run up to 6 % faster."""
    import openvino

    core = openvino.Core()
    compiled: dict[tuple[int, ...], Any] = {}

    def run(ids: Ids, mask: Ids) -> Logits:
        if ids.shape not in compiled:
            compiled.clear()  # one shape at a time: each compiled model has its own copy of the weights
            compiled[ids.shape] = _compile(core, path, Shape(*ids.shape), settings)
        request, inputs = compiled[ids.shape], dict(zip(INPUTS, (ids, mask), strict=True))
        logits: Logits = request.infer(inputs, share_inputs=True)[0]
        return logits

    return run


def _compile(core: Any, path: Path, shape: Shape, settings: dict[str, Any]) -> Any:
    model = core.read_model(path)
    model.reshape({name: list(shape) for name in INPUTS})
    return core.compile_model(model, "CPU", settings).create_infer_request()
