"""A greedy chat turn of a hybrid model, the way the qwen3.5 example drives the runtime.

Layers with linear attention have states instead of caches. They are zeros before a request. After a run each state
input is bound to the device tensor of its own output, and before the first decode step to those of prefill.
"""

import json
import re
import sys

import numpy as np

import tcim_lite as tcim

prefill_path, decode_path, embedding_path = sys.argv[1:4]
prompts, new_tokens = json.loads(sys.argv[4]), int(sys.argv[5])
STATE = re.compile(r"^past_(conv_cache|recurrent_state)_(\d+)(\.hmcc\.format)?$")
OUTPUT = {"conv_cache": "conv_cache_out", "recurrent_state": "recurrent_state_out"}


def names_of(module):
    return [module.get_input_name(i) for i in range(module.get_num_inputs())]


class Chat:
    def __init__(self):
        weight_manager = tcim.runtime.WeightManager(tcim.runtime.DevManager([0], "Xh2HalBackend"))
        option = tcim.runtime.Option(weight_manager)
        self.prefill = tcim.runtime.load(prefill_path, option=option)
        caches = [name for name in names_of(self.prefill) if "kcache" in name or "vcache" in name]
        option.set_dummy_tensors(caches)
        self.decode = tcim.runtime.load(decode_path, option=option)
        for name in caches:
            self.decode.set_input(name, self.prefill.get_dev_input(name))
        self.states = [name for name in names_of(self.prefill) if STATE.match(name)]
        _, self.chunk, self.hidden = self.prefill.get_input_info(self.prefill.get_input_name(0)).shape
        self.embedding = np.fromfile(embedding_path, np.float16).reshape(-1, self.hidden)

    def output_of(self, state):
        kind, index, _ = STATE.match(state).groups()
        return f"{OUTPUT[kind]}_{index}"

    def go_on(self, module, source):
        for state in self.states:
            module.set_input(state, source.get_dev_output(self.output_of(state)))

    def run(self, module, tokens, chunk):
        rows, mask = np.zeros((1, chunk, self.hidden), np.float16), np.zeros((1, chunk), np.float16)
        rows[0, : len(tokens)], mask[0, : len(tokens)] = self.embedding[tokens], 1
        positions = np.arange(self.length, self.length + chunk, dtype=np.int32)
        module.set_input(module.get_input_name(0), rows)
        for index in (1, 2, 3):
            module.set_input(module.get_input_name(index), positions)
        module.set_input(module.get_input_name(4), np.array([self.length], np.int32))
        module.set_input(module.get_input_name(5), np.array([len(tokens)], np.int32))
        module.set_input(module.get_input_name(6), mask)
        module.run()
        module.sync()
        self.length += len(tokens)
        return int(module.get_output(module.get_output_name(0)).numpy()[:, -1].argmax(-1)[0])

    def answer(self, prompt):
        self.length = 0
        for state in self.states:
            info = self.prefill.get_input_info(state)
            self.prefill.set_input(state, np.zeros(info.shape, np.float16))
        for begin in range(0, len(prompt), self.chunk):
            token = self.run(self.prefill, prompt[begin : begin + self.chunk], self.chunk)
            self.go_on(self.prefill, self.prefill)
        self.go_on(self.decode, self.prefill)
        answer = [token]
        while len(answer) < new_tokens:
            answer.append(self.run(self.decode, answer[-1:], 1))
            self.go_on(self.decode, self.decode)
        return answer


chat = Chat()
print(json.dumps([chat.answer(prompt) for prompt in prompts]))
