"""This project's package of a checkpoint.  python make_tcim.py QUANT CHECKPOINT OUT BATCH [OPTION]

OPTION is a flag of `compile`, such as argmax. Of a config.json alone, one of random codes and scales: no search for
scales. Prints the bytes that one token reads.
"""

import json
import sys
import warnings
from pathlib import Path

from timing import CONTEXT, PROMPTS

from tcim_lite.bench.cost import weight_bytes
from tcim_lite.hmm import read
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

quant, checkpoint, out, batch = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a made-up tokenizer, or none
    compile_checkpoint(
        CompileOptions(
            checkpoint=checkpoint,
            output=out,
            prefill_length=PROMPTS[0],
            context_length=CONTEXT,
            batch=batch,
            quant=quant,
            **dict.fromkeys(sys.argv[5:], True),
            random_weights=not (checkpoint / "model.safetensors").exists(),
        )
    )
print(json.dumps({"token_bytes": weight_bytes(read(next(out.glob("*_decode.hmm"))))}))
