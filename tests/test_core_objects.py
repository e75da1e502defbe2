"""Objects of the core are made by their calls alone, and are neither copied nor pickled."""

import copy
import pickle
import re
from functools import partial

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite import _core

CORE_CLASSES = sorted(
    (value for value in vars(_core).values() if isinstance(value, type) and not issubclass(value, BaseException)),
    key=lambda value: value.__name__,
)


@pytest.mark.parametrize("core_class", CORE_CLASSES, ids=lambda core_class: core_class.__name__)
def test_an_object_of_the_core_is_not_made_by_its_class(core_class):
    class Derived(core_class):
        pass

    base = core_class.__mro__[1]
    makers = (core_class, Derived, lambda: core_class.__new__(core_class), lambda: Derived.__new__(Derived))
    for maker in (*makers, lambda: base.__new__(core_class), lambda: object.__new__(core_class)):
        with pytest.raises(TypeError):
            maker()


def test_copies_and_pickles_of_core_objects_are_refused():
    info = rt.TensorInfo((2,), np.float32)._core
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            attempt(info)


def test_what_to_do_instead_of_pickling_is_said(add_model):
    module = rt.load(add_model)
    tensor = module.get_output(module.get_output_name(0))
    stream = rt.Stream()
    for thing, words in (
        (module, "load it again"),
        (tensor, "send tensor.numpy()"),
        (tensor.info, "shape and dtype"),
        (stream, "make one in the process that uses it"),
    ):
        for attempt in (pickle.dumps, partial(pickle.dumps, protocol=0), copy.deepcopy):
            with pytest.raises(TypeError, match=re.escape(words)):
                attempt(thing)
    module.set_stream(copy.copy(stream))
    assert copy.copy(module).get_num_inputs() == module.get_num_inputs()
    assert copy.copy(tensor).shape == copy.copy(tensor.info).shape == tensor.shape
