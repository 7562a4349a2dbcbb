"""The numbers of the numeric contract that training, the reference and the kernels share; kernels.h has them too."""

GRID = 2.0**16  # LayerNorm's statistics are integers in units of 2^-16
LAYER_NORM_LIMIT = 512.0  # 4,096 squares of (512 * 2^16) sum to 2^62: the integer sums cannot overflow
