// What both WebAssembly files share: the indices of values. Everything is static.
#ifndef BIBERT_SIMD128_INDICES_H
#define BIBERT_SIMD128_INDICES_H

#include <wasm_simd128.h>

#include <cstring>

#include "kernels.h"

namespace bibert {
namespace {

// The indices of four values, in 32 bits (numeric contract, rule 9). Truncation equals floor, except below 0, where the
// index is 0 anyway and the unsigned narrowing that must follow sets it.
[[gnu::always_inline]] inline v128_t index_of(v128_t values, const float* edge, const float* rate, uint8_t top) {
  const v128_t position = wasm_f32x4_mul(wasm_f32x4_sub(values, wasm_v128_load(edge)), wasm_v128_load(rate));
  return wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_pmin(position, wasm_f32x4_splat(top)));
}

[[gnu::always_inline]] inline v128_t narrow(v128_t a, v128_t b, v128_t c, v128_t d) {
  return wasm_u8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(a, b), wasm_i16x8_narrow_i32x4(c, d));
}

[[gnu::always_inline]] inline void store_four_bytes(v128_t index, uint8_t* out) {
  wasm_v128_store32_lane(out, narrow(index, index, index, index), 0);
}

}  // namespace
}  // namespace bibert

#endif
