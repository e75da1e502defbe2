"""A host that answers with one model after another: lengths as its counters hold them, weights released in between."""

import json
import sys

import numpy as np

import tcim_lite as tcim
from tcim_lite import dev_ctrl

prefill_path, decode_path, embedding_path = sys.argv[1:4]
prompt, new_tokens, turns = json.loads(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])

weight_manager = tcim.runtime.WeightManager(tcim.runtime.DevManager([0], "Xh2HalBackend"))


def answer():
    option = tcim.runtime.Option(weight_manager)
    prefill = tcim.runtime.load(prefill_path, option=option)
    names = [prefill.get_input_name(i) for i in range(prefill.get_num_inputs())]
    option.set_dummy_tensors(names[3:])
    decode = tcim.runtime.load(decode_path, option=option)
    for name in names[3:]:
        decode.set_input(name, prefill.get_dev_input(name))
    _, chunk, hidden = prefill.get_input_info(names[0]).shape
    embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)
    context = np.zeros([], np.int64)  # 0-d, and as wide as numpy counts
    for begin in range(0, len(prompt), chunk):
        part = prompt[begin : begin + chunk]
        prefill.set_input(names[0], np.pad(embedding[part], ((0, chunk - len(part)), (0, 0)))[None])
        prefill.set_input(names[1], context)
        prefill.set_input(names[2], np.array([len(part)], np.int16))
        prefill.run()
        prefill.sync()
        context = context + len(part)
    tokens = [int(prefill.get_output("logits").numpy()[:, -1].argmax(-1)[0])]
    decode.set_input(names[2], np.ones(1, np.float16))  # what a model's own dtype makes of ones()
    while len(tokens) < new_tokens:
        decode.set_input(names[0], embedding[tokens[-1]][None, None])
        decode.set_input(names[1], np.array([context]))
        decode.run()
        decode.sync()
        context = context + 1
        tokens.append(int(decode.get_output("logits").numpy()[:, -1].argmax(-1)[0]))
    return tokens


device = dev_ctrl.HalDeviceFactory.create("Xh2HalBackend")
answers, held = [], []
for _ in range(turns):
    answers.append(answer())
    weight_manager.release()
    held.append(device.get_mem_info(0)[1].mem_used)
weight_manager.destroy()
print(json.dumps([answers, held]))
