// Which kernels this build has, which of them this CPU can run, and which one a model uses.
#ifndef BIBERT_DISPATCH_H
#define BIBERT_DISPATCH_H

#include <string>
#include <vector>

#include "kernels.h"

namespace bibert {

// Best first; the reference is always present and last.
const std::vector<const Kernels*>& available_kernels();

// The kernels with that name; if null, those that the environment variable BIBERT_ISA names, or else the best. Throws
// Error if they are not available.
const Kernels& choose_kernels(const char* isa);

// The names of available_kernels(), for example "avx2 reference".
std::string available_names();

}  // namespace bibert

#endif
