"""The mathematics of the paper as functions of tensors: tensors in, tensors out, no state."""
