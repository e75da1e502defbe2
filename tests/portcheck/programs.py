"""Small decode loops, each with one risky pattern, and the same without it."""

from __future__ import annotations

_PYTHON = """
import sys
import numpy as np
import tcim_lite.runtime as tcim

model = tcim.load(sys.argv[1])
row = np.zeros(model.get_input_info("a").shape, np.float32)
tensor = tcim.Tensor(model.get_input_info("a"), row)
total = model.get_output_name(0)
model.set_input("b", row)
model.set_input("length", np.int32(1))
model.set_input("image", np.zeros(4, np.int8))

def step(token):
    {before}
    model.set_input("length", np.int32(token))
    model.set_input("a", {value})
    model.run({waits})
    {sync}
    return {result}

token = 0
for _ in range(8):
    token = step(token)
print(token)
"""
_CLEAN = {
    "before": "row[...] = token % 3", "value": "row", "waits": "", "sync": "model.sync()",
    "result": "int(model.get_output(total).numpy().argmax())",
}  # fmt: skip

# Name: code, the changes that make the pattern, the text of its line, whether a run shows it.
PYTHON = {
    "an output fetched twice": (
        "P-101", {"sync": "model.sync(); first = model.get_output(total).numpy()[0]"}, "return", True,
    ),
    "all logits converted": (
        "P-101", {"result": "int(model.get_output(total).astype(np.float32).numpy().argmax())"}, "return", True,
    ),
    "all logits converted in numpy": (
        "P-101", {"result": "int(model.get_output(total).numpy().reshape(-1).astype(np.float64).argmax())"}, "return",
        False,
    ),
    "an array for every token": (
        "P-102", {"before": "rows = np.zeros(model.get_input_info('a').shape, np.float32)", "value": "rows"}, "rows =",
        False,
    ),
    "a tensor for every token": (
        "P-102", {"value": "tcim.Tensor(model.get_input_info('a'), row)"}, "tcim.Tensor(model.get_input_info('a')",
        True,
    ),
    "a result read without sync": ("P-201", {"sync": "pass"}, "return", True),
    "an input written without sync": (
        "P-201", {"sync": "model.set_input('a', row); model.sync()"}, "model.set_input('a'", True,
    ),
    "unsigned bytes for an input": (
        "P-301", {"value": "(row + 200).astype(np.uint8)"}, 'set_input("a"', False,
    ),
    "a result viewed as another type": (
        "P-301", {"result": "int(model.get_output(total).numpy().view(np.int32).argmax())"}, "return", False,
    ),
}  # fmt: skip

CLEAN = {
    "as it should be": {},
    "run that waits": {"waits": "sync=True", "sync": "pass"},
    "run that waits, by position": {"waits": "True", "sync": "pass"},
    "an array kept and used twice": {"sync": "model.sync(); logits = model.get_output(total).numpy()",
                                     "result": "int(logits.argmax()) + int(logits.size > 0)"},
    "a few logits converted": {"result": "int(model.get_output(total).numpy()[0, :5].astype(np.float64).argmax())"},
    "one tensor written again": {"value": "tensor"},
    "small arrays": {"before": "model.set_input('length', np.ones(1, np.int32))"},
    "signed bytes meant": {"value": "row.astype(np.uint8).view(np.int8)"},
    "memory made where a condition holds": {"before": "fresh = tcim.Tensor(tensor.info) if token < 0 else tensor"},
}  # fmt: skip


def python_program(changes: dict[str, str]) -> str:
    """The loop with changes."""
    return _PYTHON.format(**{**_CLEAN, **changes})


_CPP = """
#include "tcim/tcim_runtime.h"
// model.GetOutput("in a comment") is no call, nor is the next line's text.
const char* kText = "tcim::ImageOps::Resizer";
int Argmax(const float* values, size_t count);

int main(int argc, char** argv) {{
  tcim::Module model = tcim::Module::LoadFromFile(argv[1]);
  const auto info = model.GetInputInfo("a").AsContiguous();
  tcim::Tensor row = tcim::Tensor::CreateHostTensor(info);
  tcim::Tensor logits = tcim::Tensor::CreateHostTensor(model.GetOutputInfo("total").AsType(tcim::FLOAT32));
  int32_t length = 0;
  for (int token = 0; token < 8; ++token) {{
    {before}
    model.SetInput("n", tcim::Tensor::CreateHostTensor(info, sizeof(length), &length));
    model.SetInput("a", {value});
    model.Run();
    {sync}
    {result}
  }}
  return 0;
}}
"""
_CPP_CLEAN = {
    "before": "", "value": "row",
    "sync": "model.Sync();",
    "result": 'model.GetOutput("total").CastTo(logits); length = Argmax(static_cast<float*>(logits.Data()), 9);',
}  # fmt: skip
CPP = {
    "all logits converted anew": (
        "P-101", {"result": 'logits = model.GetOutput("total").AsType(tcim::FLOAT32);'}, "AsType(tcim::FLOAT32);",
    ),
    "an output fetched twice": (
        "P-101", {"result": 'auto a = model.GetOutput("total");\n auto twice = model.GetOutput("total");'},
        "auto twice",
    ),
    "a tensor for every token": ("P-102", {"before": "row = tcim::Tensor::CreateHostTensor(info);"}, "    row = "),
    "a result read without sync": ("P-201", {"sync": ""}, "CastTo"),
    "halves read as floats": (
        "P-301", {"result": 'auto out = model.GetOutput("total"); length = Argmax((float*)out.Data(), 9);'},
        "auto out",
    ),
    "halves read as floats at once": (
        "P-301", {"result": 'length = Argmax(static_cast<float*>(model.GetOutput("total").Data()), 9);'}, "length = ",
    ),
}  # fmt: skip
CPP_CLEAN = {
    "as it should be": {},
    "run that waits": {"sync": "", "result": ""},
    "halves read as halves": {"result": 'auto out = model.GetOutput("total"); const void* p = (uint16_t*)out.Data();'},
}


# Not a token loop: one image after another, and modules made for each stream.
PYTHON_IMAGES = """
import sys
import numpy as np
import tcim_lite.runtime as tcim

def classify(path, image):
    module = tcim.load(path)
    module.set_input("image", image)
    module.run()
    module.sync()
    return int(module.get_output("scores").astype(np.float32).numpy().argmax())

for image in np.zeros((3, 1, 3, 224, 224), np.float16):
    print(classify(sys.argv[1], image))
"""


def cpp_program(changes: dict[str, str]) -> str:
    """The loop with changes."""
    return _CPP.format(**{**_CPP_CLEAN, **changes})
