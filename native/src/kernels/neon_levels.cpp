#include "levels.h"
namespace bibert {
const LevelKernels kNeonLevels = kReferenceLevels;
}  // namespace bibert
