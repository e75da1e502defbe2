"""Prefill and decode in processes of their own, on a device each; the caches travel through the host."""

import json
import multiprocessing
import sys

import numpy as np

import tcim_lite as tcim


def prefill_process(device, path, embedding_path, requests, caches_out):
    option = tcim.runtime.Option(tcim.runtime.WeightManager(device))
    module = tcim.runtime.load(path, option=option)
    names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
    _, chunk, hidden = module.get_input_info(names[0]).shape
    embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)
    while (prompt := requests.get()) is not None:
        for begin in range(0, len(prompt), chunk):
            part = prompt[begin : begin + chunk]
            rows = np.zeros((1, chunk, hidden), np.float16)
            rows[0, : len(part)] = embedding[part]
            module.set_input(names[0], rows)
            module.set_input(names[1], np.array([begin], np.int32))
            module.set_input(names[2], np.array([len(part)], np.int32))
            module.run()
            module.sync()
        token = int(module.get_output("logits").numpy().reshape(-1).argmax())
        caches = {name: module.get_dev_input(name).to_host(True).numpy() for name in names if "cache" in name}
        caches_out.put((token, len(prompt), caches))
    caches_out.put(None)


def decode_process(device, path, embedding_path, new_tokens, caches_in, answers):
    option = tcim.runtime.Option(tcim.runtime.WeightManager(device))
    probe = json.loads(tcim.runtime.load_model_info(path))
    names = [item["name"] for item in probe["input"]]
    option.set_dummy_tensors([name for name in names if "cache" in name])
    module = tcim.runtime.load(path, option=option)
    hidden = module.get_input_info(module.get_input_name(0)).shape[-1]
    embedding = np.fromfile(embedding_path, np.float16).reshape(-1, hidden)
    module.set_input(module.get_input_name(2), np.array(1).astype("int32"))
    while (request := caches_in.get()) is not None:
        token, length, caches = request
        for name, array in caches.items():
            module.set_input(name, array)  # the first time, this gives the dummy its memory
        tokens = [token]
        while len(tokens) < new_tokens:
            module.set_input(module.get_input_name(0), embedding[tokens[-1]].reshape(1, 1, -1))
            module.set_input(module.get_input_name(1), np.array(length).astype("int32"))
            module.run()
            module.sync()
            tokens.append(int(module.get_output("logits").numpy().reshape(-1).argmax()))
            length += 1
        answers.put(tokens)
    answers.put(None)


if __name__ == "__main__":
    prefill_path, decode_path, embedding_path = sys.argv[1:4]
    prompts, new_tokens = json.loads(sys.argv[4]), int(sys.argv[5])
    context = multiprocessing.get_context(sys.argv[6])
    last = tcim.runtime.get_device_num() - 1
    requests, caches, answers = context.Queue(), context.Queue(), context.Queue()
    processes = [
        context.Process(target=prefill_process, args=(0, prefill_path, embedding_path, requests, caches)),
        context.Process(target=decode_process, args=(last, decode_path, embedding_path, new_tokens, caches, answers)),
    ]
    for process in processes:
        process.start()
    for prompt in [*prompts, None]:
        requests.put(prompt)
    print(json.dumps(list(iter(lambda: answers.get(timeout=60), None))))
    for process in processes:
        process.join()
        assert process.exitcode == 0
