"""A chat turn that times its parts with the vendor's tracker, as the LLM demos do, and prints the figures as JSON."""

import json
import sys

import numpy as np
from hmatc.python.get_hm_devices import get_hm_devices
from hmatc.utils.perf_infomations import PERFTYPE, InferencePerformanceTracker
from hmatc.utils.utils import first_not_none, parse_context_length

import tcim_lite as tcim

prefill_path, decode_path, embedding_path = sys.argv[1:4]
prompt, new_tokens = json.loads(sys.argv[4]), int(sys.argv[5])

tracker = InferencePerformanceTracker()
option = tcim.runtime.Option(tcim.runtime.WeightManager(tcim.runtime.DevManager(get_hm_devices(1), "Xh2HalBackend")))
tracker.perf_start(PERFTYPE.PREFILL_LOAD_TIME)
prefill = tcim.runtime.load(prefill_path, option=option)
tracker.perf_end(PERFTYPE.PREFILL_LOAD_TIME)
names = [prefill.get_input_name(i) for i in range(prefill.get_num_inputs())]
option.set_dummy_tensors(names[3:])
tracker.perf_start(PERFTYPE.DECODE_LOAD_TIME)
decode = tcim.runtime.load(decode_path, option=option)
tracker.perf_end(PERFTYPE.DECODE_LOAD_TIME)
for name in names[3:]:
    decode.set_input(name, prefill.get_dev_input(name))
decode.set_input(names[2], np.array(1, np.int32))
_, chunk, hidden = prefill.get_input_info(names[0]).shape
embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)
assert len(prompt) <= first_not_none(None, chunk) <= parse_context_length("4k")

tracker.reset_perf_time()
tracker.perf_start(PERFTYPE.PREFILL_TOTAL_TIME)
tracker.perf_start(PERFTYPE.PREFILL_EMBED_TIME)
rows = np.zeros((1, chunk, hidden), np.float16)
rows[0, : len(prompt)] = embedding[prompt]
tracker.perf_end(PERFTYPE.PREFILL_EMBED_TIME)
tracker.perf_start(PERFTYPE.PREFILL_INPUT_TIME)
prefill.set_input(names[0], rows)
prefill.set_input(names[1], np.array(0, np.int32))
prefill.set_input(names[2], np.array(len(prompt), np.int32))
tracker.perf_end(PERFTYPE.PREFILL_INPUT_TIME)
tracker.perf_start(PERFTYPE.PREFILL_INFER_TIME)
prefill.run()
prefill.sync()
tracker.perf_end(PERFTYPE.PREFILL_INFER_TIME)
tokens = [int(prefill.get_output("logits").numpy().reshape(-1).argmax())]
tracker.perf_end(PERFTYPE.PREFILL_TOTAL_TIME)

tracker.perf_start(PERFTYPE.DECODE_TOTAL_TIME)
while len(tokens) < new_tokens:
    decode.set_input(names[0], embedding[tokens[-1]].reshape(1, 1, -1))
    decode.set_input(names[1], np.array(len(prompt) + len(tokens) - 1, np.int32))
    tracker.perf_start(PERFTYPE.DECODE_INFER_TIME)
    decode.run()
    decode.sync()
    tracker.perf_end(PERFTYPE.DECODE_INFER_TIME)
    tokens.append(int(decode.get_output("logits").numpy().reshape(-1).argmax()))
tracker.perf_end(PERFTYPE.DECODE_TOTAL_TIME)
tracker.set_basic_info(1, len(prompt), len(tokens) - 1)
tracker.show_summary()
metrics = tracker.current_metrics
print(json.dumps([tokens, metrics.ttft, metrics.tpot, metrics.e2e_time, metrics.decode_perf_infos.infer_time]))
