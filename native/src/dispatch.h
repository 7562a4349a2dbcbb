// Which kernels this build has, which of them this CPU can run, and which one is taken.
#ifndef BIBERT_DISPATCH_H
#define BIBERT_DISPATCH_H

#include <string>
#include <vector>

#include "kernels.h"

namespace bibert {

// Best first; the reference is always there and always last.
const std::vector<const Kernels*>& available_kernels();

// Those of that name; null takes the one that the environment variable BIBERT_ISA names, else the best. Throws an Error
// if they are not available.
const Kernels& choose_kernels(const char* isa);

// The names of available_kernels(), as "avx2 reference".
std::string available_names();

}  // namespace bibert

#endif
