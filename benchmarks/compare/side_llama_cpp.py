"""llama.cpp's side, through the low-level API as llama-bench does.  python side_llama_cpp.py FILE.gguf THREADS

Decode at depth is measured with flash attention as llama.cpp chooses it and without: which is faster depends on the
machine, and the faster one is reported.
"""

import ctypes
import sys
import time

import llama_cpp as llama
import numpy as np
from timing import CONTEXT, DEPTH, decode_seconds, measure, memory, report


class LlamaCpp:
    def __init__(self, model, threads: int, flash_attention: int):
        options = llama.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = CONTEXT, CONTEXT, 512
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn_type = flash_attention
        self.context = llama.llama_init_from_model(model, options)
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        if not self.context:
            sys.exit("llama.cpp made no context; its own message is above")

    def prefill(self, tokens):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)
        return self._run(tokens)

    def decode(self, token, position):
        return self._run([token])

    def _run(self, tokens):
        array = (llama.llama_token * len(tokens))(*tokens)
        status = llama.llama_decode(self.context, llama.llama_batch_get_one(array, len(tokens)))
        if status != 0:
            sys.exit(f"llama_decode returned {status} for {len(tokens)} tokens")
        logits = llama.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())


@llama.llama_log_callback
def warnings_only(level, text, data):
    if level >= 3:  # GGML_LOG_LEVEL_WARN
        sys.stderr.write(text.decode(errors="replace"))


llama.llama_log_set(warnings_only, ctypes.c_void_p(0))
llama.llama_backend_init()
imports_bytes, begin = memory("VmRSS"), time.perf_counter()
threads = int(sys.argv[2])
model = llama.llama_model_load_from_file(sys.argv[1].encode(), llama.llama_model_default_params())
if not model:
    sys.exit(f"llama.cpp did not load {sys.argv[1]}")
chosen = LlamaCpp(model, threads, llama.LLAMA_FLASH_ATTN_TYPE_AUTO)
load_s = time.perf_counter() - begin
result = {"load_s": load_s, "imports_bytes": imports_bytes} | measure(chosen)
llama.llama_free(chosen.context)
without = decode_seconds(LlamaCpp(model, threads, llama.LLAMA_FLASH_ATTN_TYPE_DISABLED), DEPTH)
result[f"decode_{DEPTH}_s"] = min(result[f"decode_{DEPTH}_s"], without)
report(result)
