"""A throughput tool: managers are made in the parent, forked children load, queue many runs and sync once."""

import json
import multiprocessing
import sys

import numpy as np

import tcim_lite as tcim

ROUNDS, RUNS = 4, 5


def measure(device, weight_manager, ready, queue):
    option = tcim.runtime.Option(weight_manager)
    run_option = tcim.runtime.RunOption(ROUNDS)
    modules = []
    for _ in range(2):
        module = tcim.runtime.load(sys.argv[1], option)
        module.set_stream(tcim.runtime.Stream(True))
        for i in range(module.get_num_inputs()):
            name = module.get_input_name(i)
            info = module.get_input_info(name)
            data = np.ones(info.shape, dtype=np.float32).astype(info.dtype)
            module.set_input(name, tcim.runtime.Tensor(info, data))
        # The sum is fed back, so it counts the rounds.
        module.set_dev_output("total", module.get_dev_input("b"))
        modules.append(module)
    ready.wait()
    for _ in range(RUNS):
        for module in modules:
            module.run(False, run_option)
    for module in modules:
        module.sync()
    queue.put((device, [float(module.get_output("total").numpy().max()) for module in modules]))


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    count = tcim.runtime.get_device_num()
    managers = [tcim.runtime.WeightManager(tcim.runtime.DevManager([d], "Xh2HalBackend")) for d in range(count)]
    queue, ready = context.Queue(), context.Barrier(count)
    arguments = [(device, managers[device], ready, queue) for device in range(count)]
    processes = [context.Process(target=measure, args=each) for each in arguments]
    for process in processes:
        process.start()
    results = dict(queue.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    print(json.dumps([results[device] for device in range(count)]))
