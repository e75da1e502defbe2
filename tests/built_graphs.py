"""Graphs of a builder, loaded and run once."""

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.hmm import Role


def load(builder, outputs, weights, live=None):
    """The graph of a builder as a module."""
    roles = {output: Role("result", layer=index) for index, output in enumerate(outputs)}
    return rt.load(hmm.model_bytes(builder.build(roles, live), weights))


def run(module, **inputs):
    """The outputs of one run, in their order."""
    for name, value in inputs.items():
        module.set_input(name, value)
    module.run(True)
    names = map(module.get_output_name, range(module.get_num_outputs()))
    return [module.get_output(name).numpy() for name in names]
