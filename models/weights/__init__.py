"""From a checkpoint's tensors to packed bytes: what a weight is to the model, its quantiser and its layout."""
