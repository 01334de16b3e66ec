"""ImageNet-1K, read from the image files in place."""
