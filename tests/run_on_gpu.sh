#!/usr/bin/env bash
# run_on_gpu.sh [FOLDER]: builds with CUDA, without network, and runs what needs a GPU; reports go to FOLDER (out/gpu).
# Needs nvcc, cmake, ninja, scikit-build-core, pybind11, numpy, onnx, safetensors and pytest. Weights are made here.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-out/gpu}"); mkdir -p "$out"
export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
python3 -m pip install -q --no-build-isolation --no-deps --no-index --upgrade --target "$out/site" -C build-dir="$out/build" \
  -C cmake.define.TCIM_LITE_CUDA=ON -C cmake.define.TCIM_LITE_TESTS=ON -C cmake.define.TCIM_LITE_BENCHMARKS=ON \
  ${TCIM_LITE_CUDA_ARCHITECTURES:+-C cmake.define.TCIM_LITE_CUDA_ARCHITECTURES="$TCIM_LITE_CUDA_ARCHITECTURES"} .
export PYTHONPATH=$out/site${PYTHONPATH:+:$PYTHONPATH}
# start NAME COMMAND...: beside what follows; what it prints goes to FOLDER/NAME.txt. `finish` fails if one of them did.
names=() processes=()
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
start() { "${@:2}" > "$out/$1.txt" 2>&1 & names+=("$1") processes+=($!); }
finish() {
  for i in "${!names[@]}"; do
    wait "${processes[i]}" || { tail -40 "$out/${names[i]}.txt"; echo "${names[i]}: failed"; exit 1; }
    echo "${names[i]}: $(tail -1 "$out/${names[i]}.txt")"
  done
}

if command -v compute-sanitizer > /dev/null; then
  memcheck="compute-sanitizer --tool memcheck --error-exitcode 1"
  start memcheck env TCIM_LITE_CUDA_WGMMA=on $memcheck "$out/build/bin/cuda_test"
  start memcheck_linear env TCIM_LITE_CUDA_WGMMA=on $memcheck "$out/build/bin/cuda_linear_test"
  start memcheck_experts env TCIM_LITE_CUDA_WGMMA=on $memcheck "$out/build/bin/cuda_experts_test"
  for wgmma in off on; do
    for program in network convolutions; do
      start memcheck_${program}_$wgmma env TCIM_LITE_CUDA_WGMMA=$wgmma $memcheck "$out/build/bin/cuda_${program}_test"
    done
  done
fi
for wgmma in off on; do
  for program in cuda_test cuda_linear_test cuda_convolutions_test cuda_experts_test cuda_network_test; do
    TCIM_LITE_CUDA_WGMMA=$wgmma "$out/build/bin/$program" > "$out/$program.txt" 2>&1 || { cat "$out/$program.txt"; exit 1; }
  done
  echo "ops and layers, wgmma $wgmma: within bounds"
done
for tier in full llm; do
  start conformance_$tier env TCIM_LITE_DEVICE=cuda python3 -P -m tcim_lite.conformance --tier $tier \
    --waivers tests/cuda/waivers.txt --report "$out/conformance-$tier"
done
start in_place env -C tests TCIM_LITE_DEVICE=cuda python3 -P -m pytest -q -p no:cacheprovider \
  onnx/test_in_place.py test_runtime_linear_attention.py test_runtime_delta_rule.py
start networks python3 -P tests/cuda/check_networks.py
start towers python3 -P tests/cuda/check_towers.py "$out"
start speech python3 -P tests/cuda/check_speech.py "$out"
start packages python3 -P tests/cuda/check_packages.py "$out"
start assistant python3 -P tests/cuda/check_assistant.py "$out"
start lora python3 -P tests/cuda/check_lora.py "$out"
python3 -P tests/cuda/check_model.py "$out"
for model in qwen3-w4a8h0_ssfp qwen3-w8a8h1_sefp qwen3-float16 qwen3_moe-w4a8h0_ssfp; do
  start diff_$model python3 -P -m tcim_lite diff "$out/model-$model" "$out/model-$model" --env-b TCIM_LITE_DEVICE=cuda \
    -o "$out/diff-$model"
done
TCIM_LITE_DEVICE=cuda TCIM_LITE_DEVICE_NUM=2 python3 -P tests/cuda/check_devices.py "$out"
TCIM_LITE_DEVICE_NUM=2 python3 -P tests/cuda/check_taps.py "$out"
python3 -P tests/cuda/check_replay.py "$out"
if [ "$(nvidia-smi -L | wc -l)" -ge 2 ]; then python3 -P tests/cuda/check_gpus.py "$out"; fi
finish
