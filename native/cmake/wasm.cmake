# Compiles for WebAssembly with zig (PyPI: ziglang) and runs the tests in Node:
#   cmake -S . -B build/wasm --toolchain native/cmake/wasm.cmake -DBIBERT_ZIG=path/to/zig -DBIBERT_TESTS=ON
# Exceptions are WebAssembly's own, in their first form, which every browser has; native/wasm/exceptions.cpp.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES BIBERT_ZIG)
set(CMAKE_CXX_COMPILER ${BIBERT_ZIG} c++)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasi)
set(CMAKE_CXX_FLAGS_INIT "-fwasm-exceptions -mexception-handling -g0")
set(CMAKE_CROSSCOMPILING_EMULATOR node --no-warnings ${CMAKE_CURRENT_LIST_DIR}/../wasm/run.mjs)
