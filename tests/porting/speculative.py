"""Speculative decoding on the files that the vendor's demo opens by default: a draft proposes, one run judges."""

import json
import sys

import numpy as np

import tcim_lite as tcim

FOLDER = "output/xh2"
prompt, new_tokens = json.loads(sys.argv[1]), int(sys.argv[2])


def names_of(module):
    return [module.get_input_name(i) for i in range(module.get_num_inputs())]


class Pair:
    """Two graphs on the caches of the first; `cached` says how many tokens those hold."""

    def __init__(self, weight_manager, first, second, role):
        self.prefill = tcim.runtime.load(f"{FOLDER}/{first}", option=tcim.runtime.Option(weight_manager))
        caches = [name for name in names_of(self.prefill) if "model_layers" in name]
        option = tcim.runtime.Option(weight_manager)
        option.set_dummy_tensors(caches)
        self.second = tcim.runtime.load(f"{FOLDER}/{second}", option=option)
        for name in caches:
            self.second.set_input(name, self.prefill.get_input(name))
        hidden = self.prefill.get_input_info(self.prefill.get_input_name(0)).shape[2]
        self.embedding = np.fromfile(f"{FOLDER}/{role}/hmquant/quant_embedding.bin", np.float16).reshape(-1, hidden)
        self.cached = 0

    def run(self, module, tokens):
        length = module.get_input_info(module.get_input_name(0)).shape[1]
        rows = np.zeros((1, length, self.embedding.shape[1]), np.float32)
        rows[0, : len(tokens)] = self.embedding[tokens]
        module.set_input(module.get_input_name(0), rows)
        module.set_input(module.get_input_name(1), np.array([self.cached]).astype("int32"))
        module.set_input(module.get_input_name(2), np.array([len(tokens)]).astype("int32"))
        module.run()
        module.sync()
        self.cached += len(tokens)
        return module.get_output(module.get_output_name(0)).numpy()[0]

    def run_prefill(self, tokens):
        chunk = self.prefill.get_input_info(self.prefill.get_input_name(0)).shape[1]
        for begin in range(0, len(tokens), chunk):
            logits = self.run(self.prefill, tokens[begin : begin + chunk])
        return int(logits[-1].argmax())


manager = tcim.runtime.WeightManager(0)
draft = Pair(manager, "qwen3_prefill_draft.hmm", "qwen3_decode_draft.hmm", "draft")
target = Pair(manager, "qwen3_prefill.hmm", "qwen3_verify.hmm", "target")
steps = target.second.get_input_info(target.second.get_input_name(0)).shape[1]

draft.run_prefill(prompt)
text, accepted = [*prompt, target.run_prefill(prompt)], 0
while len(text) < len(prompt) + new_tokens:
    proposed = []
    for token in text[draft.cached :]:
        logits = draft.run(draft.second, [token])
    while len(proposed) < steps - 1:
        proposed.append(int(logits[-1].argmax()))
        if len(proposed) < steps - 1:
            logits = draft.run(draft.second, proposed[-1:])
    known = len(text)
    choices = target.run(target.second, [text[-1], *proposed]).argmax(-1)
    while len(text) - known < len(proposed) and proposed[len(text) - known] == choices[len(text) - known]:
        text.append(proposed[len(text) - known])
    accepted += len(text) - known
    target.cached = len(text)
    text.append(int(choices[len(text) - known]))
    draft.cached = min(draft.cached, target.cached)
print(json.dumps([text[len(prompt) :][:new_tokens], accepted]))
