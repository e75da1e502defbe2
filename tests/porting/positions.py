"""A greedy chat turn on graphs with position ids at index 3, the way the 30B-A3B example feeds them."""

import json
import sys

import numpy as np

import tcim_lite as tcim

prefill_path, decode_path, embedding_path = sys.argv[1:4]
prompt, new_tokens = json.loads(sys.argv[4]), int(sys.argv[5])

option = tcim.runtime.Option(tcim.runtime.WeightManager(tcim.runtime.DevManager([0], "Xh2HalBackend")))
prefill = tcim.runtime.load(prefill_path, option=option)
names = [prefill.get_input_name(i) for i in range(prefill.get_num_inputs())]
has_positions = len(names) % 2 == 0  # rows, two lengths and pairs of caches are an odd number
caches = names[4:] if has_positions else names[3:]
option.set_dummy_tensors(caches)
decode = tcim.runtime.load(decode_path, option=option)
for name in caches:
    decode.set_input(name, prefill.get_dev_input(name))
_, chunk, hidden = prefill.get_input_info(names[0]).shape
context_length = decode.get_input_info(decode.get_input_name(4)).shape[2]
embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)
context = 0


def run(module, tokens, size):
    global context
    rows = np.zeros((1, size, hidden), dtype=np.float32)
    rows[0, : len(tokens)] = embedding[tokens]
    module.set_input(module.get_input_name(0), rows)
    module.set_input(module.get_input_name(1), np.array([context]).astype("int32"))
    module.set_input(module.get_input_name(2), np.array([len(tokens)]).astype("int32"))
    if has_positions:
        positions = np.arange(context, context + size).astype("int32").reshape(1, size)
        module.set_input(module.get_input_name(3), positions)
    module.run()
    module.sync()
    context += len(tokens)
    return int(module.get_output(module.get_output_name(0)).numpy()[:, -1].argmax(-1)[0])


for begin in range(0, len(prompt), chunk):
    token = run(prefill, prompt[begin : begin + chunk], chunk)
answer = [token]
while len(answer) < new_tokens and context < context_length:
    answer.append(run(decode, answer[-1:], 1))
print(json.dumps([answer, has_positions]))
