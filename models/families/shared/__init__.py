"""What several families share: keys, tensors, graph inputs, and tiny configs for tests."""
