"""transformers' side, bf16, eager.  python side_transformers.py CHECKPOINT THREADS"""

import sys
import time

import torch
from timing import measure, memory, report
from transformers import AutoModelForCausalLM, DynamicCache


class Transformers:
    def __init__(self, folder: str):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True).eval()
        self.cache = None

    def prefill(self, tokens):
        self.cache = DynamicCache(config=self.model.config)
        return self._run(tokens)

    def decode(self, token, position):
        return self._run([token])

    @torch.inference_mode()
    def _run(self, tokens):
        ids = torch.tensor([tokens])
        return int(self.model(ids, past_key_values=self.cache, logits_to_keep=1).logits[0, -1].argmax())


torch.set_num_threads(int(sys.argv[2]))
imports_bytes, begin = memory("VmRSS"), time.perf_counter()
side = Transformers(sys.argv[1])
load_s = time.perf_counter() - begin
report({"load_s": load_s, "imports_bytes": imports_bytes} | measure(side))
