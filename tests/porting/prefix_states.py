"""Greedy chat turns of a hybrid model that keep its states, the way the examples for prefix caching do.

States of linear attention are written where they are read, one buffer for both graphs. A copy of them is taken after
each chunk of a prompt, and the longest that fits the next prompt is put back.
"""

import json
import sys

import numpy as np

import tcim_lite as tcim

prompts, new_tokens, in_place = json.loads(sys.argv[4]), int(sys.argv[5]), sys.argv[6] == "in place"
option = tcim.runtime.Option(tcim.runtime.WeightManager(0))
prefill = tcim.runtime.load(sys.argv[1], option=option)
names = [prefill.get_input_name(i) for i in range(prefill.get_num_inputs())]
states = [name for name in names if "conv_cache" in name or "recurrent_state" in name]
option.set_dummy_tensors([name for name in names if "model_layers" in name])
decode = tcim.runtime.load(sys.argv[2], option=option)
for name in names:
    if "model_layers" in name:
        decode.set_dev_input(name, prefill.get_dev_input(name))
for name in states:
    state = prefill.get_dev_input(name)
    output = name.replace("past_conv_cache", "conv_cache_out").replace("past_recurrent_state", "recurrent_state_out")
    if "conv_cache" in name or not in_place:
        prefill.set_dev_output(output, state)
    decode.set_dev_input(name, state)
    decode.set_dev_output(output, state)
_, chunk, hidden = prefill.get_input_info(names[0]).shape
embedding = np.fromfile(sys.argv[3], np.float16).reshape(-1, hidden)
lengths = 4 if names[1] == "time_position_ids" else 1
snapshots, cached, replayed = {}, [], []


def run(module, tokens, rows, before):
    embedded = np.zeros((1, rows, hidden), np.float32)
    embedded[0, : len(tokens)] = embedding[tokens]
    module.set_input(names[0], embedded)
    for name in names[1:lengths]:
        module.set_input(name, np.arange(before, before + rows, dtype=np.int64))
    module.set_input(names[lengths], np.array([before], np.int32))
    module.set_input(names[lengths + 1], np.array([len(tokens)], np.int32))
    module.set_input(names[lengths + 2], (np.arange(rows) < len(tokens)).astype(np.float16)[None])
    module.run()
    module.sync()
    return int(module.get_output(module.get_output_name(0)).numpy()[0, -1].argmax())


def answer(prompt):
    global cached
    for name in states:
        zeros = np.zeros(prefill.get_dev_input(name).info.shape, dtype=np.float16)
        prefill.set_input(name, zeros)
        decode.set_input(name, zeros)
    equal = [old == new for old, new in zip(cached, prompt, strict=False)]
    matched = equal.index(False) if False in equal else len(equal)
    begin = max((end for end in snapshots if end <= matched and end < len(prompt)), default=0)
    for name, value in snapshots.get(begin, {}).items():
        value.copy_to(prefill.get_dev_input(name))
    for stale in [end for end in snapshots if end > begin]:
        del snapshots[stale]
    replayed.append(begin)
    while begin < len(prompt):
        end = min(begin + chunk, len(prompt))
        if begin < matched < end:
            end = matched
        token = run(prefill, prompt[begin:end], chunk, begin)
        snapshots[end] = {name: prefill.get_dev_input(name).clone() for name in states}
        begin = end
    cached, tokens = prompt, [token]
    while len(tokens) < new_tokens:
        tokens.append(run(decode, tokens[-1:], 1, len(prompt) + len(tokens) - 1))
    return tokens


print(json.dumps([[answer(prompt) for prompt in prompts], replayed]))
