"""Running a packed model without torch: the numpy reference, the native engine, text, the classifier."""
