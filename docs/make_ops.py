"""Prints docs/ops.md, the table of ops, from csrc/graph/ops. Needs the package installed."""

from tcim_lite import _core

INTRODUCTION = """# Ops
<!-- Made from csrc/graph/ops by docs/make_ops.py: `make docs` does it. -->

What a graph may hold ([hmm-format.md](hmm-format.md), section 5). Names follow the vendor's operator set where it has
one, else ONNX. As a dtype, T is the graph's tensor dtype, float16 or float32. In shapes, B is batch slots, T tokens and
C context length. Operands called weight, bias, cos and sin are weights, all others are not. Numbers:
[numerics.md](numerics.md).

- *State*: the op reads a state operand and updates it in place; the result is the same storage.
- *Cut*: how devices may share the op. Columns: the last axis of the result. Heads: the axis of heads. Rows: any axis
  but the last. Every element is computed whole on one device.

The CPU and the CUDA backend compute all of them.
"""


def page() -> str:
    """The page in Markdown."""
    lines = [
        INTRODUCTION,
        "| op | version | operands, attributes and result | meaning | state | cut |",
        "|---|---|---|---|---|---|",
    ]
    for row in _core.op_table():
        cells = (f"`{row['signature']}`", row["meaning"], "yes" if row["updates_state"] else "", row["cut"])
        lines.append(f"| {row['name']} | {row['version']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
