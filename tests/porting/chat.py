"""A greedy chat turn, the way the qwen3 example drives the runtime: prefill in chunks, decode on prefill's caches."""

import json
import sys

import numpy as np

import tcim_lite as tcim

prefill_path, decode_path, embedding_path = sys.argv[1:4]
prompt, new_tokens = json.loads(sys.argv[4]), int(sys.argv[5])


class Chat:
    def __init__(self):
        dev_manager = tcim.runtime.DevManager([0], "Xh2HalBackend")
        weight_manager = tcim.runtime.WeightManager(dev_manager)
        option = tcim.runtime.Option(weight_manager)
        self.prefill = tcim.runtime.load(prefill_path, option=option)
        cache_names = [self.prefill.get_input_name(i) for i in range(3, self.prefill.get_num_inputs())]
        option.set_dummy_tensors(cache_names)
        self.decode = tcim.runtime.load(decode_path, option=option)
        for i in range(3, self.decode.get_num_inputs()):
            tensor = self.prefill.get_dev_input(self.prefill.get_input_name(i))
            self.decode.set_input(self.decode.get_input_name(i), tensor)

        _, self.chunk, self.hidden = self.prefill.get_input_info(self.prefill.get_input_name(0)).shape
        self.context = self.prefill.get_input_info(self.prefill.get_input_name(3)).shape[2]
        self.embedding = np.fromfile(embedding_path, np.float16).reshape(-1, self.hidden)
        self.decode.set_input(self.decode.get_input_name(2), np.array(1).astype("int32"))
        self.length = 0

    def run_prefill(self, tokens):
        for begin in range(0, len(tokens), self.chunk):
            part = tokens[begin : begin + self.chunk]
            rows = np.zeros((1, self.chunk, self.hidden), dtype=np.float32)
            rows[0, : len(part)] = self.embedding[part]
            self.prefill.set_input(self.prefill.get_input_name(0), rows)
            self.prefill.set_input(self.prefill.get_input_name(1), np.array(self.length).astype("int32"))
            self.prefill.set_input(self.prefill.get_input_name(2), np.array(len(part)).astype("int32"))
            self.prefill.run()
            self.prefill.sync()
            self.length += len(part)
        logits = self.prefill.get_output(self.prefill.get_output_name(0)).numpy()
        return int(logits[:, -1].argmax(-1)[0])

    def run_decode(self, token):
        self.decode.set_input(self.decode.get_input_name(0), self.embedding[token].reshape(1, 1, -1).astype(np.float32))
        self.decode.set_input(self.decode.get_input_name(1), np.array(self.length).astype("int32"))
        self.decode.run()
        self.decode.sync()
        self.length += 1
        return int(self.decode.get_output(self.decode.get_output_name(0)).numpy()[:, -1].argmax(-1)[0])


chat = Chat()
answer = [chat.run_prefill(prompt)]
while len(answer) < new_tokens and chat.length < chat.context:
    answer.append(chat.run_decode(answer[-1]))
print(json.dumps(answer))
