"""What the compilers of all model families share: checkpoints, quantisers, packing, the graph builder."""
