"""Run by `test_distributed` under torchrun: the distillations of a pickled job, each interrupted once and resumed."""

import os
import pickle
import signal
import sys
from contextlib import suppress
from pathlib import Path

from transformers import TrainerCallback

from bibert.training.callbacks import Interrupted
from bibert.training.student import distill


class SignalsTheLastProcess(TrainerCallback):
    """One process is told to stop; all have to write the checkpoint and leave."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):  # noqa: ARG002
        if state.global_step == self.step and args.process_index == args.world_size - 1:
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    job = pickle.loads((folder / "job.pickle").read_bytes())
    for scheme in job["schemes"]:
        arguments = (job["teacher"], scheme, job["data"], folder / scheme, job["recipe"])
        with suppress(Interrupted):
            distill(*arguments, callbacks=[SignalsTheLastProcess(job["interrupted_at"])])
            raise SystemExit("the run was not interrupted")
        distill(*arguments)
