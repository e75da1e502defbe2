#!/usr/bin/env bash
# run_on_gpu.sh [FOLDER]: builds with CUDA, without network, and runs what needs a GPU; reports go to FOLDER (out/gpu).
# Needs nvcc, cmake, ninja, scikit-build-core, pybind11, numpy, onnx and pytest. Weights are made here.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-out/gpu}"); mkdir -p "$out"
export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
python3 -m pip install -q --no-build-isolation --no-deps --no-index --upgrade --target "$out/site" -C build-dir="$out/build" \
  -C cmake.define.TCIM_LITE_CUDA=ON -C cmake.define.TCIM_LITE_TESTS=ON -C cmake.define.TCIM_LITE_BENCHMARKS=ON \
  ${TCIM_LITE_CUDA_ARCHITECTURES:+-C cmake.define.TCIM_LITE_CUDA_ARCHITECTURES="$TCIM_LITE_CUDA_ARCHITECTURES"} .
export PYTHONPATH=$out/site${PYTHONPATH:+:$PYTHONPATH}
for wgmma in off on; do
  for program in cuda_test cuda_experts_test cuda_network_test; do
    TCIM_LITE_CUDA_WGMMA=$wgmma "$out/build/bin/$program" > "$out/$program.txt" 2>&1 || { cat "$out/$program.txt"; exit 1; }
  done
  echo "ops and layers, wgmma $wgmma: within bounds"
done
for wgmma in off on; do
  if command -v compute-sanitizer > /dev/null; then
    TCIM_LITE_CUDA_WGMMA=$wgmma compute-sanitizer --tool memcheck --error-exitcode 1 "$out/build/bin/cuda_network_test" > "$out/memcheck_network.txt" 2>&1 || { tail -40 "$out/memcheck_network.txt"; exit 1; }
  fi
done
memcheck=""
if command -v compute-sanitizer > /dev/null; then  # for minutes, beside what follows
  TCIM_LITE_CUDA_WGMMA=on compute-sanitizer --tool memcheck --error-exitcode 1 "$out/build/bin/cuda_test" > "$out/memcheck.txt" 2>&1 & memcheck=$!
fi
python3 -P tests/cuda/check_model.py "$out"
python3 -P tests/cuda/check_networks.py
TCIM_LITE_DEVICE=cuda TCIM_LITE_DEVICE_NUM=2 python3 -P tests/cuda/check_devices.py "$out"
for tier in full llm; do
  TCIM_LITE_DEVICE=cuda python3 -P -m tcim_lite.conformance --tier $tier --waivers tests/cuda/waivers.txt --report "$out/conformance-$tier" | tail -4
done
if [ -n "$memcheck" ]; then
  wait "$memcheck" || { tail -40 "$out/memcheck.txt"; exit 1; }
  tail -1 "$out/memcheck.txt"
fi
TCIM_LITE_DEVICE_NUM=2 python3 -P tests/cuda/check_taps.py "$out"
python3 -P tests/cuda/check_replay.py "$out"
for model in qwen3-w4a8h0_ssfp qwen3-w8a8h1_sefp qwen3-float16 qwen3_moe-w4a8h0_ssfp; do
  python3 -P -m tcim_lite diff "$out/model-$model" "$out/model-$model" --env-b TCIM_LITE_DEVICE=cuda -o "$out/diff-$model"
done
