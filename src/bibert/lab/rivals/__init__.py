"""The engines that users would run instead of a packed model, and how the two compare in time, size and memory."""
