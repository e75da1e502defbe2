"""Recordings replayed across kinds of device: made on the CPU and run again on the GPU within bounds, made on the GPU
and run again there bit for bit.

    python tests/cuda/check_replay.py FOLDER

A prefill and a greedy decode of a language model, and both demo networks. A replay feeds the recorded inputs, so the
bounds are those of one step: check_model.py's for logits, as shares of the largest; check_networks.py's for networks,
there as cosines of the outputs: a difference of norm n turns a vector by at most asin(n).
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
import check_model
import check_networks
import onnx

from tcim_lite.models.onnx import onnx_bytes

# argv: a package of a language model.
CHAT = """
import sys
import tcim_lite.runtime as tcim
from tcim_lite.llm import Generator, Package, load_pair

package = Package.open(sys.argv[1])
prefill, decode = load_pair(package.prefill_path, package.decode_path, tcim.WeightManager(0))
model = Generator(prefill, decode, package.embedding_for(prefill))
token = int(model.prefill(list(range(100, 300))).argmax())
for position in range(200, 220):
    token = int(model.decode(token, position).argmax())
"""
# argv: a package of a network.
NETWORK = """
import sys
import numpy as np
import tcim_lite.runtime as tcim

module = tcim.load(sys.argv[1])
rng = np.random.default_rng(1)
for _ in range(3):
    for name in map(module.get_input_name, range(module.get_num_inputs())):
        module.set_input(name, rng.standard_normal(tuple(module.get_input_info(name).shape)).astype(np.float32))
    module.run(sync=True)
    for name in map(module.get_output_name, range(module.get_num_outputs())):
        module.get_output(name).numpy()
"""


def record(program: str, model: Path, device: str, file: Path) -> None:
    environment = {"TCIM_LITE_LAYERS": f"record:{file}", "TCIM_LITE_RECORD_DATA": "all", "TCIM_LITE_DEVICE": device}
    file.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-P", "-c", program, str(model)], env=os.environ | environment, check=True)


def replays(file: Path, *tolerance: str) -> bool:
    """On the GPU; prints what the command says."""
    command = [sys.executable, "-P", "-m", "tcim_lite", "replay", str(file), *tolerance]
    done = subprocess.run(command, env=os.environ | {"TCIM_LITE_DEVICE": "cuda"}, capture_output=True, text=True)
    print(f"{file.stem}: {done.stdout.strip()}{done.stderr.strip()}", flush=True)
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    cases: list[tuple[str, str, Path, str]] = []  # name, program, model, tolerance
    for quant, limit in check_model.LIMITS.items():
        package = check_model.package_of(folder, quant)
        cases.append((f"qwen3-{quant}", CHAT, Path(package.folder), f"rel={limit}"))
    for path in sorted(check_networks.DEMO.glob("*.onnx")):
        for quant, limit in check_networks.LIMITS.items():
            model = folder / f"{path.stem}-{quant}.hmm"
            model.write_bytes(onnx_bytes(check_networks.batch_of_3(onnx.load(path)), quant))
            cases.append((f"{path.stem}-{quant}", NETWORK, model, f"cosine={(1 - limit**2) ** 0.5:.12f}"))
    good, differing = True, 0
    for name, program, model, tolerance in cases:
        for device in ("cpu", "cuda"):
            file = folder / f"{name}-from-{device}.tcimrec"
            record(program, model, device, file)
            good &= replays(file, *(("--tolerance", tolerance) if device == "cpu" else ()))
        differing += not replays(folder / f"{name}-from-cpu.tcimrec")
    print(f"{differing} of {len(cases)} recordings of the CPU differ on the GPU where nothing may differ")
    sys.exit(not good or not differing)  # were all equal, the replay would not have run on the GPU


if __name__ == "__main__":
    main()
