"""Requests join the slots of one decode graph while others run; equal prompts are copied between slots on the device.

Decode owns the caches of all slots and lends them to prefill, one slot at a time. A prompt that another slot holds
already is not computed again: views of its rows are copied, and only its last token is.
"""

import json
import re
import sys

import numpy as np

import tcim_lite as tcim

prefill_path, decode_path, embedding_path = sys.argv[1:4]
prompts, new_tokens = json.loads(sys.argv[4]), int(sys.argv[5])
manager = tcim.runtime.WeightManager(0)
decode = tcim.runtime.load(decode_path, option=tcim.runtime.Option(manager))
names = [decode.get_input_name(i) for i in range(decode.get_num_inputs())]
count = decode.get_input_info(names[0]).shape[0]


def of_slot(slot):
    """valid_length, current_length and the caches of a slot, in order."""
    ends = "" if slot == 0 else f"_batch_{slot}"
    return [name for name in names[1:] if (re.search(r"_batch_\d+$", name) or [""])[0] == ends]


caches = of_slot(0)[2:]
prefill = tcim.runtime.load(prefill_path, option=tcim.runtime.Option(manager).set_dummy_tensors(caches))
_, chunk, hidden = prefill.get_input_info("input_1").shape
embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)
prompt_of, length_of, token_of = [[]] * count, [0] * count, [0] * count
answers, waiting, request_of, computed = [[] for _ in prompts], list(range(len(prompts))), [None] * count, 0


def copied(prompt, slot):
    """The rows of this prompt but the last, taken from another slot; their number."""
    held = next((other for other in range(count) if other != slot and prompt_of[other] == prompt), None)
    rows = len(prompt) - 1
    if held is None or rows == 0:
        return 0
    for source, target in zip(of_slot(held)[2:], of_slot(slot)[2:], strict=True):
        tensor = decode.get_dev_input(source)
        batch, heads, _, width = tensor.info.shape
        part = [batch, heads, rows, width]
        tensor.select_roi([0] * 4, part).copy_to(decode.get_dev_input(target).select_roi([0] * 4, part))
    return rows


def start(slot, request):
    global computed
    prompt = prompts[request]
    for name, cache in zip(caches, of_slot(slot)[2:], strict=True):
        prefill.set_dev_input(name, decode.get_dev_input(cache))
    for begin in range(copied(prompt, slot), len(prompt), chunk):
        part = prompt[begin : begin + chunk]
        rows = np.zeros((1, chunk, hidden), np.float16)
        rows[0, : len(part)] = embedding[part]
        prefill.set_input("input_1", rows)
        prefill.set_input("valid_length", np.array(begin).astype("int32"))
        prefill.set_input("current_length", np.array(len(part)).astype("int32"))
        prefill.run()
        prefill.sync()
        computed += len(part)
    token_of[slot] = int(prefill.get_output("logits").numpy().reshape(-1).argmax())
    prompt_of[slot], length_of[slot], request_of[slot] = prompt, len(prompt), request
    answers[request].append(token_of[slot])


while waiting or any(request is not None for request in request_of):
    free = next((slot for slot in range(count) if request_of[slot] is None), None)
    if waiting and free is not None:
        start(free, waiting.pop(0))  # one request a step: each joins while others are at work
    decode.set_input(names[0], embedding[token_of].reshape(count, 1, hidden))
    for slot in range(count):  # a slot without a request computes too; its row is written anew by the next one
        valid, current = of_slot(slot)[:2]
        decode.set_input(valid, np.array(length_of[slot]).astype("int32"))
        decode.set_input(current, np.array(1).astype("int32"))
    decode.run()
    decode.sync()
    logits = decode.get_output("logits").numpy().reshape(count, -1)
    for slot, request in enumerate(request_of):
        if request is not None:
            token_of[slot] = int(logits[slot].argmax())
            length_of[slot] += 1
            answers[request].append(token_of[slot])
            if len(answers[request]) == new_tokens:
                request_of[slot] = None
print(json.dumps([computed, answers]))
