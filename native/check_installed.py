"""Checks the installed package: every shipped model on every instruction set of this CPU gives the reference's bits."""

import numpy as np

from bibert.models import shipped_file
from bibert.packed.file import load
from bibert.runtime import reference
from bibert.runtime.engine import Encoded, Engine, available_isas

IDS = (101, 1037, 9882, 1010, 25591, 2143, 102)  # [CLS] a gorgeous, witty film [SEP]

for name in ("sst2", "sentiment_2", "sentiment_4"):
    packed = load(shipped_file(name))
    expected = reference.logits(packed, [IDS])
    for isa in available_isas():
        found = Engine.from_packed(packed, isa=isa).logits_of([Encoded(np.array(IDS))])
        if found.tobytes() != expected.tobytes():
            raise SystemExit(f"{name} on {isa}: {found} is not the reference's {expected}")
        print(f"{name} on {isa}: the reference's bits")
