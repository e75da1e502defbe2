"""A greedy chat turn on graphs with one attention mask, of layers with a window, as the Laguna example feeds it."""

import json
import sys

import numpy as np
from hmatc.python.get_hm_devices import get_hm_devices

import tcim_lite as tcim

prompt, new_tokens, window, devices = json.loads(sys.argv[4]), *map(int, sys.argv[5:8])
manager = tcim.runtime.WeightManager(tcim.runtime.DevManager(get_hm_devices(devices), "Xh2HalBackend"))
prefill = tcim.runtime.load(sys.argv[1], option=tcim.runtime.Option(manager))
names = [prefill.get_input_name(i) for i in range(prefill.get_num_inputs())]
caches = [name for name in names if "cache" in name.lower()]
option = tcim.runtime.Option(manager)
option.set_dummy_tensors(caches)
decode = tcim.runtime.load(sys.argv[2], option=option)
for _ in range(2):  # once more before a chat without history
    for name in caches:
        info = prefill.get_input_info(name)
        prefill.set_input(name, np.zeros(info.shape, dtype=np.dtype(info.dtype)))
        decode.set_input(name, prefill.get_dev_input(name))
_, chunk, hidden = prefill.get_input_info("input_1").shape
embedding = np.fromfile(sys.argv[3], np.float16).reshape(-1, hidden)


def mask_of(rows, before, columns):
    """What every row sees, those of padding too."""
    place = min(before, window - 1) + np.arange(rows)[:, None]
    column = np.arange(columns)
    seen = (column <= place) & (column > place - window)
    return np.where(seen, 0, np.finfo(np.float16).min).astype(np.float16).reshape(1, 1, rows, columns)


def run(module, tokens, rows, before):
    embedded = np.zeros((1, rows, hidden), np.float16)
    embedded[0, : len(tokens)] = embedding[tokens]
    columns = module.get_input_info("sliding_attention_mask").shape[3]
    module.set_input("input_1", embedded)
    module.set_input("valid_length", np.array([before], dtype=np.int32))
    module.set_input("current_length", np.array([len(tokens)], dtype=np.int32))
    module.set_input("sliding_attention_mask", mask_of(rows, before, columns))
    module.run()
    module.sync()
    return int(module.get_output("logits").numpy()[0, -1].argmax())


for begin in range(0, len(prompt), chunk):
    token = run(prefill, prompt[begin : begin + chunk], chunk, begin)
answer = [token]
while len(answer) < new_tokens:
    answer.append(run(decode, answer[-1:], 1, len(prompt) + len(answer) - 1))
print(json.dumps(answer))
