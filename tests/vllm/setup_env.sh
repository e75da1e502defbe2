#!/bin/sh
# setup_env.sh FOLDER: an environment with CPU torch, vLLM without a device of its own, and tcim_lite as it is here.
set -e
folder=$1
cd "$(dirname "$0")/../.."
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
pip="$folder/bin/python -m pip --disable-pip-version-check -q"
PATH=$(cd "$folder" && pwd)/bin:$PATH
if ! "$folder/bin/python" -c 'from importlib.metadata import version; assert version("vllm") == "0.33.0"' 2>/dev/null; then
    # No build isolation: it would download another torch, with CUDA.
    $pip install torch==2.13.0 --extra-index-url https://download.pytorch.org/whl/cpu
    $pip install 'setuptools>=77,<81' 'setuptools-scm>=8' setuptools-rust wheel ninja cmake jinja2 packaging
    VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=0.33.0 $pip install --no-build-isolation --no-binary vllm vllm==0.33.0
fi
$pip install scikit-build-core 'pybind11>=3' ml-dtypes 'pytest>=8,<9.2' ray==2.60.0 pytest-asyncio==1.5.0 pytest-timeout==2.4.0 tblib==3.2.2
$pip install --no-build-isolation --no-deps --force-reinstall .
