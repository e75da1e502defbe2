# make demo       build the package, compile the demo checkpoint, and chat with it
# make check      run the tests that every change needs, two to five minutes on two cores
# make test       run all that CI runs
# make test-all   run that and every case of the grids, of which CI runs those that differ
# make docs       write the generated pages of docs/, and the types of the compiled core
# make fuzz       fuzz the readers of files
# make test-vllm  test the plugin against vLLM, in an environment of 3.1 GB
# make clean      remove what these made: .venv, .venv-vllm, build and out
# All but test-vllm use one .venv in this folder, with the versions of constraints.txt; docs/developing.md says more.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check -q
# --no-compile: Python compiles what is imported; pip would compile all of transformers. What it compiled must be kept:
# the tests start hundreds of programs, and each would compile numpy again.
export PYTHONDONTWRITEBYTECODE :=
INSTALL := $(PIP) install --no-compile -c constraints.txt
DEMO := out/demo
# ninja would start two compilers more, and the last and longest would get half a processor.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)
ARGS ?= --question "Hello, who are you?" \
        --question "My name is Anna and I live in Oslo." \
        --question "What is 12 + 30?" \
        --question "Reverse: 1 2 3 4 5" \
        --question "7加5等于多少？" \
        --question "What is my name?"

# Tests that share a file, or build, run in one process (tests/conftest.py).
PARALLEL ?= -n auto --maxprocesses 4 --dist loadgroup --no-loadscope-reorder
# Threads of torch spin while they wait for one another: beside another process of tests, ten times what they compute.
check test test-all: export OMP_NUM_THREADS ?= 1

FUZZ_RUNS ?= 10000000
FUZZ_JOBS ?= $(shell nproc)

.PHONY: demo help check test test-all test-vllm fuzz docs clean

demo: $(VENV)/demo
	$(BIN)/tcim-lite compile examples/demo_checkpoint -o $(DEMO) --name qwen3 --prefill-length 256 --context-length 2048
	$(BIN)/python examples/qwen3_chat.py $(DEMO) $(ARGS)
	@echo "Your turn: $(BIN)/tcim-lite chat $(DEMO)"

help:
	@sed '/^$$/Q; s/^# //' $(firstword $(MAKEFILE_LIST))

# What every change needs: no other builds, no flows of whole programs.
check: $(VENV)/test
	$(BIN)/pytest $(PARALLEL) -q -m "not build and not slow and not gpu and not oracle and not grid"

test: $(VENV)/test
	$(BIN)/pytest $(PARALLEL) -m "not grid"

test-all: $(VENV)/test
	$(BIN)/pytest $(PARALLEL)

# Against vLLM itself, in an environment of its own of 3.1 GB (docs/vllm.md). A process for each file, because a process
# has one distributed world of torch. Not from this folder: vLLM starts
# `python -m`, which would import the sources beside it, without their compiled core.
LIVE ?= $(filter-out %/live_fixtures.py,$(wildcard tests/vllm/live_*.py))
test-vllm:
	tests/vllm/setup_env.sh .venv-vllm
	cd .venv-vllm && for file in $(LIVE); do \
	    PYTHONPATH=$(CURDIR)/tests/vllm bin/python -P -m pytest -q -p live_fixtures -p no:cacheprovider -c /dev/null \
	        --import-mode=importlib --noconftest $(CURDIR)/$$file || exit 1; \
	done

fuzz: $(VENV)/test
	$(BIN)/python tests/fuzzing.py --runs $(FUZZ_RUNS) --jobs $(FUZZ_JOBS)
	$(BIN)/python tests/onnx/fuzz_models.py --runs $$(( $(FUZZ_RUNS) / 10 )) --jobs $(FUZZ_JOBS)

docs: $(VENV)/test
	$(BIN)/python docs/make_api.py
	$(BIN)/tcim-lite explain --markdown > docs/strict.md
	$(BIN)/tcim-lite port-check --table > docs/api-status.md
	$(BIN)/python csrc/bindings/make_stub.py
	$(BIN)/python docs/make_ops.py > docs/ops.md
	$(BIN)/python docs/make_models.py > docs/models.md
	$(BIN)/python docs/make_onnx.py

# The package is rebuilt when a source changes; the C++ build folder is kept, so that takes seconds.
SOURCES := pyproject.toml csrc/runtime/m50.toml CMakeLists.txt constraints.txt \
           $(shell find csrc tcim_lite models -name '*.cpp' -o -name '*.h' -o -name '*.def' -o -name '*.py' -o -name '*.pyi' -o -name CMakeLists.txt -o -name '*.cmake')

# The pip that Python has, if it has one, fills the environment: to make another first takes three seconds. One process
# unpacks CMake, which is large, while another fetches the rest.
TOOLS := --disable-pip-version-check -q install --no-compile -c constraints.txt
$(VENV)/tools: constraints.txt
	@echo "fetching the tools that build the package into $(VENV)"
	@if $(PYTHON) -c 'import pip; assert int(pip.__version__.split(".")[0]) > 22' 2>/dev/null; \
	then $(PYTHON) -m venv --without-pip $(VENV) && \
	    { $(PYTHON) -m pip --python $(BIN)/python $(TOOLS) cmake ninja & cmake=$$!; \
	    $(PYTHON) -m pip --python $(BIN)/python $(TOOLS) pip scikit-build-core pybind11 && wait $$cmake; }; \
	else $(PYTHON) -m venv $(VENV) && $(BIN)/pip $(TOOLS) pip scikit-build-core pybind11 cmake ninja; fi
	touch $@

# The compilers work while pip fetches what the package needs.
define install
	@echo "building the package into $(VENV), with the extras $(EXTRAS): a few minutes the first time"
	@$(INSTALL) --no-build-isolation --no-deps --force-reinstall . & build=$$!; \
	$(INSTALL) --no-build-isolation --only-deps '.[$(EXTRAS)]' || { kill $$build; exit 1; }; \
	wait $$build
	touch $@
endef

$(VENV)/demo: EXTRAS := compile,chat
$(VENV)/demo: $(VENV)/tools $(SOURCES)
	$(install)

$(VENV)/test: EXTRAS := compile,chat,test
$(VENV)/test: $(VENV)/tools $(SOURCES)
	$(install)
	touch $(VENV)/demo

clean:
	rm -rf $(VENV) .venv-vllm build out
