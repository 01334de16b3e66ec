"""Triton kernels for GPUs, and their launch."""
