// The run-time part of C++ exceptions on WebAssembly. Zig builds its C++ library without it, but ships the source, so
// this file compiles that with our flags. The engine stays the same source as elsewhere: its errors are exceptions.
#include <stdbool.h>
#include <stdint.h>
#include <threads.h>
#include <unwind.h>

#include "config.h"

extern "C" {
#include "libunwind/src/Unwind-wasm.c"
}
#include "libcxxabi/src/cxa_exception.cpp"
#include "libcxxabi/src/cxa_personality.cpp"

// The tag of all C++ exceptions.
__asm__(
    ".globl __cpp_exception\n"
    ".tagtype __cpp_exception i32\n"
    "__cpp_exception:\n");
