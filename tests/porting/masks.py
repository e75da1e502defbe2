"""A greedy chat turn on graphs with two attention masks at index 3 and 4, the way the gpt-oss example feeds them."""

import json
import sys

import numpy as np

import tcim_lite as tcim

prefill_path, decode_path, embedding_path = sys.argv[1:4]
prompt, new_tokens, window = json.loads(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])
HIDDEN = np.float16(-65504)

option = tcim.runtime.Option(tcim.runtime.WeightManager(tcim.runtime.DevManager([0], "Xh2HalBackend")))
prefill = tcim.runtime.load(prefill_path, option=option)
caches = [prefill.get_input_name(i) for i in range(5, prefill.get_num_inputs())]
option.set_dummy_tensors(caches)
decode = tcim.runtime.load(decode_path, option=option)
for name in caches:
    decode.set_input(name, prefill.get_dev_input(name))
_, chunk, hidden = prefill.get_input_info(prefill.get_input_name(0)).shape
context_length = decode.get_input_info(decode.get_input_name(4)).shape[3]
embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)
context = 0


def local_mask(size, count, columns):
    """Column j is cache row max(context - (window - 1), 0) + j."""
    mask = np.full((1, 1, size, columns), HIDDEN, dtype=np.float16)
    before = min(context, window - 1)
    for i in range(count):
        mask[0, 0, i, max(i + before - window + 1, 0) : i + before + 1] = 0
    return mask


def global_mask(size, count):
    mask = np.full((1, 1, size, context_length), HIDDEN, dtype=np.float16)
    for i in range(count):
        mask[0, 0, i, : context + i + 1] = 0
    return mask


def run(module, tokens, size):
    global context
    rows = np.zeros((1, size, hidden), dtype=np.float16)
    rows[0, : len(tokens)] = embedding[tokens]
    columns = module.get_input_info(module.get_input_name(3)).shape[3]
    module.set_input(module.get_input_name(0), rows)
    module.set_input(module.get_input_name(1), np.array([context]).astype("int32"))
    module.set_input(module.get_input_name(2), np.array([len(tokens)]).astype("int32"))
    module.set_input(module.get_input_name(3), local_mask(size, len(tokens), columns))
    module.set_input(module.get_input_name(4), global_mask(size, len(tokens)))
    module.run()
    module.sync()
    context += len(tokens)
    return int(module.get_output(module.get_output_name(0)).numpy()[:, -1].argmax(-1)[0])


for begin in range(0, len(prompt), chunk):
    token = run(prefill, prompt[begin : begin + chunk], chunk)
answer = [token]
while len(answer) < new_tokens and context < context_length:
    answer.append(run(decode, answer[-1:], 1))
print(json.dumps(answer))
