"""A greedy turn about an image the way the vendor's Qwen3-VL and Qwen2.5-VL examples feed their graphs, by index.

"habits" are Qwen2.5-VL's: lengths as float16 and without a shape, positions as int64 in prefill and float16 in decode.
Features, those of deepstack among them, and positions come from files, as from the vision graph and transformers.
"""

import json
import sys

import numpy as np

import tcim_lite as tcim

prefill_path, decode_path, embedding_path, inputs_path = sys.argv[1:5]
new_tokens, habits = int(sys.argv[5]), sys.argv[6] == "habits"
given = np.load(inputs_path)
tokens, positions, features = given["tokens"], given["positions"], given["features"]  # [N], [3, N], [1 + D, tokens, H]

weights = tcim.runtime.WeightManager(tcim.runtime.DevManager([0], "Xh2HalBackend"))
decode = tcim.runtime.load(decode_path, option=tcim.runtime.Option(weights))
first = 9 if len(features) > 1 else 6  # of the caches
names = [decode.get_input_name(i) for i in range(decode.get_num_inputs())]
option = tcim.runtime.Option(weights)
option.set_dummy_tensors(names[first:])
prefill = tcim.runtime.load(prefill_path, option=option)
for index in range(first, len(names)):
    prefill.set_dev_input(prefill.get_input_name(index), decode.get_dev_input(names[index]))
_, chunk, hidden = prefill.get_input_info(names[0]).shape
context_length = decode.get_input_info(names[first + 1]).shape[2]
embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)

images = tokens == given["image_token"]
rows = embedding[tokens].astype(np.float32)
rows[images] = features[0]
stacks = np.zeros((len(features) - 1, *rows.shape), np.float32)
stacks[:, images] = features[1:]
delta = int(positions.max()) + 1 - len(tokens)


def length(value, small):
    if habits:
        return np.float16(value)
    return np.array([value]).astype("int16" if small else "int32")


def run(module, size, rows, where, stacks, context):
    count = len(rows)

    def padded(values):
        return np.concatenate([values, np.zeros((size - count, *values.shape[1:]), values.dtype)])

    module.set_input(module.get_input_name(0), padded(rows)[None].astype("float16"))
    for axis in range(3):
        kind = ("int64" if size > 1 else "float16") if habits else "int32"
        module.set_input(module.get_input_name(1 + axis), padded(where[axis]).astype(kind))
    module.set_input(module.get_input_name(4), length(context, False))
    module.set_input(module.get_input_name(5), length(count, True))
    for index, stack in enumerate(stacks):
        module.set_input(module.get_input_name(6 + index), padded(stack)[None])
    module.run()
    module.sync()
    return int(module.get_output(module.get_output_name(0)).numpy()[:, -1].argmax(-1)[0])


for context in range(0, len(tokens), chunk):
    end = min(context + chunk, len(tokens))
    token = run(prefill, chunk, rows[context:end], positions[:, context:end], stacks[:, context:end], context)
context, answer = len(tokens), [token]
while len(answer) < new_tokens and context < context_length:
    here = np.full((3, 1), context + delta)
    answer.append(run(decode, 1, embedding[answer[-1:]], here, np.zeros((len(stacks), 1, hidden)), context))
    context += 1
print(json.dumps(answer))
