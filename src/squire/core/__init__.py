"""What every package needs and none owns: files, tensor files, parallel loops, progress, processes, kernels."""

__version__ = "0.1.0"
