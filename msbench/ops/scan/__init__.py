"""The selective scan: its interface, a slow reference, and the kernels for CPUs and GPUs."""
