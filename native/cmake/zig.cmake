# Cross-compiles with zig (PyPI: ziglang), which brings the C and C++ libraries of every target:
#   cmake -S . -B build/old --toolchain native/cmake/zig.cmake -DBIBERT_ZIG=path/to/zig -DBIBERT_TARGET=x86_64-linux-gnu.2.17
# Targets are zig's: CPU, system, and the C library or the oldest version of macOS, such as aarch64-macos.11.0-none.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES BIBERT_ZIG BIBERT_TARGET)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)  # to link a program, zig would build another C++ library
if(NOT BIBERT_TARGET MATCHES "^([^-]+)-(linux|macos|windows)")
  message(FATAL_ERROR "bibert: BIBERT_TARGET is '${BIBERT_TARGET}'; use a target of zig, such as x86_64-linux-gnu.2.17")
endif()
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_MATCH_1})
set(systems_linux Linux)
set(systems_macos Darwin)
set(systems_windows Windows)
set(CMAKE_SYSTEM_NAME ${systems_${CMAKE_MATCH_2}})
set(CMAKE_CXX_COMPILER ${BIBERT_ZIG} c++)
set(CMAKE_CXX_COMPILER_TARGET ${BIBERT_TARGET})
set(CMAKE_CXX_FLAGS_INIT "-g0")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-s")  # strip: the strip of this machine knows only its own files
set(CMAKE_EXE_LINKER_FLAGS_INIT "-s")
set(CMAKE_CXX_ARCHIVE_CREATE "${BIBERT_ZIG} ar qc <TARGET> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_FINISH "${BIBERT_ZIG} ranlib <TARGET>")
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE NEVER)
set(CMAKE_OSX_SYSROOT "")
