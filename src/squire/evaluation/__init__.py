"""Filtered ranks, metrics with signatures, baselines, calibration error, plots."""
