"""Prefix caching: the caches of a first prompt are read back, kept on the host, and written for a second one.

Prints the answers to two prompts with a common beginning, the second computed from the stored beginning only.
"""

import json
import sys

import numpy as np

import tcim_lite as tcim

prefill_path, decode_path, embedding_path = sys.argv[1:4]
first, second, new_tokens = json.loads(sys.argv[4]), json.loads(sys.argv[5]), int(sys.argv[6])

option = tcim.runtime.Option(tcim.runtime.WeightManager(0))
prefill = tcim.runtime.load(prefill_path, option=option)
names = [prefill.get_input_name(i) for i in range(prefill.get_num_inputs())]
caches = [name for name in names if "cache" in name]
option.set_dummy_tensors(caches)
decode = tcim.runtime.load(decode_path, option=option)
for name in caches:
    decode.set_input(name, prefill.get_dev_input(name))
decode.set_input(names[2], np.array(1).astype("int32"))
_, chunk, hidden = prefill.get_input_info(names[0]).shape
embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)
stored = {}  # prompt -> name -> array


def answer(prompt):
    matched, best = 0, None
    for known, arrays in stored.items():
        common = 0
        while common < min(len(known), len(prompt) - 1) and known[common] == prompt[common]:
            common += 1
        if common > matched:
            matched, best = common, arrays
    for name in caches:
        shape, dtype = prefill.get_input_info(name).shape, prefill.get_input_info(name).dtype
        prefill.set_input(name, np.zeros(shape, dtype) if best is None else best[name])
    position = matched
    while position < len(prompt):
        part = prompt[position : position + chunk]
        rows = np.zeros((1, chunk, hidden), np.float16)
        rows[0, : len(part)] = embedding[part]
        prefill.set_input(names[0], rows)
        prefill.set_input(names[1], np.array([position], np.int32))
        prefill.set_input(names[2], np.array([len(part)], np.int32))
        prefill.run()
        prefill.sync()
        position += len(part)
    stored[tuple(prompt)] = {name: prefill.get_dev_input(name).to_host().numpy() for name in caches}
    tokens = [int(prefill.get_output("logits").numpy().argmax(-1)[0][0])]
    while len(tokens) < new_tokens:
        decode.set_input(names[0], embedding[tokens[-1]].reshape(1, 1, -1))
        decode.set_input(names[1], np.array([position], np.int32))
        decode.run()
        decode.sync()
        tokens.append(int(decode.get_output("logits").numpy().argmax(-1)[0][0]))
        position += 1
    return tokens, matched


results = [answer(prompt) for prompt in (first, second)]
print(json.dumps([tokens for tokens, _ in results] + [results[1][1]]))
