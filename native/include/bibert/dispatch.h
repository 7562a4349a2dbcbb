// Which kernels this build has, which of them this CPU can run, and which one is taken.
#ifndef BIBERT_DISPATCH_H
#define BIBERT_DISPATCH_H

#include <string>
#include <vector>

#include "bibert/kernels.h"

namespace bibert {

// Best first; the reference is always there and always last.
const std::vector<const Kernels*>& available_kernels();

// The best, or the one that the environment variable BIBERT_ISA names; null if that one is not available.
const Kernels* choose_kernels();

// The names of available_kernels(), as "avx2 reference".
std::string available_names();

}  // namespace bibert

#endif
