#include "levels.h"
namespace bibert {
const LevelKernels kAvx2Levels = kReferenceLevels;
}  // namespace bibert
