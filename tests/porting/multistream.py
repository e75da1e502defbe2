"""Threads with a module and a stream each, tensors made from infos, outputs fetched in the layout of an info."""

import json
import re
import sys
import threading

import numpy as np

import tcim_lite.runtime
from tcim_lite.runtime import Tensor

print(re.search(r"v\d+\.\d+\.\d+", tcim_lite.runtime.get_version().split("\n")[0]).group())
results = {}


def worker(number, weight_manager):
    option = tcim_lite.runtime.Option(weight_manager)
    module = tcim_lite.runtime.load(sys.argv[1], option=option)
    stream = tcim_lite.runtime.Stream()
    module.set_stream(stream)
    inputs = {}
    for i in range(module.get_num_inputs()):
        name = module.get_input_name(i)
        info = module.get_input_info(name).ascontiguous()
        image = np.full(info.shape, number + 1).astype(info.dtype)
        inputs[name] = Tensor(info, image)
    totals = []
    for _ in range(10):
        for name, tensor in inputs.items():
            module.set_input(name, tensor)
        module.run()
        module.sync()
        for i in range(module.get_num_outputs()):
            name = module.get_output_name(i)
            info = module.get_output_info(name).ascontiguous()
            tensor = module.get_output(name, info)
            totals.append(float(tensor.astype(np.float32).numpy().sum()))
            assert totals[-1] == float(tensor.cast(np.float32).numpy().sum())
    results[number] = totals


threads = []
for did in range(tcim_lite.runtime.get_device_num("Xh2HalBackend")):
    manager = tcim_lite.runtime.WeightManager(did)
    threads += [threading.Thread(target=worker, args=(2 * did + k, manager)) for k in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps([sorted(set(results[number])) for number in sorted(results)]))
