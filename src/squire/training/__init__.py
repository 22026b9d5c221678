"""From a graph to a trained run: the fusion, the training data, the loop, iterative training."""
