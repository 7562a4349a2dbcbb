"""Run by `test_distributed` under torchrun: the distillations of a pickled job, which may be interrupted or killed."""

import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path

from transformers import TrainerCallback

from bibert.training.callbacks import Interrupted
from bibert.training.student import distill


class SignalsTheLastProcess(TrainerCallback):
    """One process gets a signal; told to stop, all have to write the checkpoint and leave."""

    def __init__(self, step, number, moment):
        self.step, self.number, self.moment = step, number, moment

    def on_step_begin(self, args, state, control, **kwargs):  # noqa: ARG002
        if state.global_step == self.step and args.process_index == args.world_size - 1:
            self.moment.touch()
            os.kill(os.getpid(), self.number)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    job = pickle.loads((folder / "job.pickle").read_bytes())
    for scheme in job["schemes"]:
        arguments = (job["teacher"], scheme, job["data"], folder / scheme, job["recipe"])
        if job["number"]:
            with suppress(Interrupted):
                signals = SignalsTheLastProcess(job["step"], job["number"], folder / "signalled")
                distill(*arguments, callbacks=[signals])
                raise SystemExit("the run was not interrupted")
        distill(*arguments)
