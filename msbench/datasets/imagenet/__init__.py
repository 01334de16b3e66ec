"""ImageNet-1K, read from the images where they are."""
