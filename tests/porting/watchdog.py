"""A chat that survives its card: after an error it resets the device, loads again and goes on where it was."""

import json
import sys

import numpy as np

import tcim_lite as tcim
from tcim_lite import dev_ctrl

prefill_path, decode_path, embedding_path = sys.argv[1:4]
prompt, new_tokens = json.loads(sys.argv[4]), int(sys.argv[5])
MOST_RESETS = 5


class Chat:
    def load(self):
        weight_manager = tcim.runtime.WeightManager(0)
        option = tcim.runtime.Option(weight_manager)
        self.prefill = tcim.runtime.load(prefill_path, option=option)
        self.names = [self.prefill.get_input_name(i) for i in range(self.prefill.get_num_inputs())]
        option.set_dummy_tensors(self.names[3:])
        self.decode = tcim.runtime.load(decode_path, option=option)
        for name in self.names[3:]:
            self.decode.set_input(name, self.prefill.get_dev_input(name))
        _, self.chunk, hidden = self.prefill.get_input_info(self.names[0]).shape
        self.embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)
        self.context = 0

    def drop(self):
        self.prefill = self.decode = None

    def step(self, module, tokens):
        module.set_input(self.names[0], self.embedding[tokens][None])
        module.set_input(self.names[1], np.array([self.context], np.int32))
        module.run()
        module.sync()

    def read(self, tokens):
        for begin in range(0, len(tokens), self.chunk):
            part = tokens[begin : begin + self.chunk]
            self.prefill.set_input(self.names[2], np.array([len(part)], np.int32))
            self.step(self.prefill, part + [0] * (self.chunk - len(part)))
            self.context += len(part)
        self.decode.set_input(self.names[2], np.ones(1, np.int32))
        return int(self.prefill.get_output("logits").numpy()[:, -1].argmax(-1)[0])

    def next(self, token):
        self.step(self.decode, [token])
        self.context += 1
        return int(self.decode.get_output("logits").numpy()[:, -1].argmax(-1)[0])


chat, answer, resets = Chat(), [], 0
device = dev_ctrl.HalDeviceFactory.create("Xh2aHalBackend")
device.register_pre_reset_callback(0, lambda device_id: chat.drop())
loaded = False
while len(answer) < new_tokens:
    try:
        if not loaded:
            chat.load()
            answer.append(chat.read(prompt + answer))
            loaded = True
        else:
            answer.append(chat.next(answer[-1]))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        resets += 1
        if resets > MOST_RESETS:
            raise
        assert device.ipu_reset(0) == 0
        loaded = False
print(json.dumps([answer, resets]))
