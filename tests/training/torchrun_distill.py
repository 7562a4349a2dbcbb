"""Run by `test_distributed` under torchrun: the distillations of a pickled job, one after the other."""

import pickle
import sys
from pathlib import Path

from bibert.training.distiller import distill

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    job = pickle.loads((folder / "job.pickle").read_bytes())
    for scheme in job["schemes"]:
        distill(job["teacher"], scheme, job["data"], folder / scheme, job["recipe"])
