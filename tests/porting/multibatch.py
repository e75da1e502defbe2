"""Continuous batching: decode owns the caches of its slots, prefill is bound to one slot after another.

Prints the answer to each prompt; a slot that is done is refilled, and runs on with stale tokens when nothing waits.
"""

import json
import sys

import numpy as np

import tcim_lite as tcim

prefill_path, decode_path, embedding_path = sys.argv[1:4]
prompts, new_tokens = json.loads(sys.argv[4]), int(sys.argv[5])

weight_manager = tcim.runtime.WeightManager(0)
option = tcim.runtime.Option(weight_manager)
decode = tcim.runtime.load(decode_path, option)
prefill = tcim.runtime.load(prefill_path, option)
option.set_dummy_tensors([prefill.get_input_name(i) for i in range(3, prefill.get_num_inputs())])  # after load

batch = decode.get_input_info(decode.get_input_name(0)).shape[0]
_, chunk, hidden = prefill.get_input_info(prefill.get_input_name(0)).shape
per_slot = prefill.get_num_inputs() - 1  # two lengths and the caches
embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)
for slot in range(batch):
    decode.set_input(decode.get_input_name(2 + slot * per_slot), np.array(1).astype("int32"))


def fill(slot, prompt):
    for i in range(3, prefill.get_num_inputs()):
        name = decode.get_input_name(slot * per_slot + i)
        prefill.set_input(prefill.get_input_name(i), decode.get_dev_input(name))
    for begin in range(0, len(prompt), chunk):
        part = prompt[begin : begin + chunk]
        rows = np.zeros((1, chunk, hidden), np.float32)
        rows[0, : len(part)] = embedding[part]
        prefill.set_input(prefill.get_input_name(0), rows)
        prefill.set_input(prefill.get_input_name(1), np.array(begin).astype("int32"))
        prefill.set_input(prefill.get_input_name(2), np.array(len(part)).astype("int32"))
        prefill.run()
        prefill.sync()
    logits = prefill.get_output(prefill.get_output_name(0)).to_host().numpy()
    return int(logits.reshape(-1).argmax())


waiting = list(enumerate(prompts))
answers = [[] for _ in prompts]
serves, lengths, last = [None] * batch, [0] * batch, [0] * batch
while waiting or any(request is not None for request in serves):
    for slot in range(batch):
        if serves[slot] is None and waiting:
            serves[slot], prompt = waiting.pop(0)
            lengths[slot], last[slot] = len(prompt), fill(slot, prompt)
            answers[serves[slot]].append(last[slot])
    rows = np.zeros((batch, 1, hidden), np.float32)
    for slot in range(batch):
        rows[slot, 0] = embedding[last[slot]]
        decode.set_input(decode.get_input_name(1 + slot * per_slot), np.array(lengths[slot]).astype("int32"))
    decode.set_input(decode.get_input_name(0), rows)
    decode.run()
    decode.sync()
    logits = decode.get_output(decode.get_output_name(0)).to_host().numpy()
    for slot in range(batch):
        last[slot] = int(logits[slot, 0].argmax())
        lengths[slot] += 1
        if serves[slot] is not None:
            answers[serves[slot]].append(last[slot])
            if len(answers[serves[slot]]) == new_tokens:
                serves[slot] = None
print(json.dumps(answers))
