"""CIFAR-100 and synthetic images, and the batches of each rank."""
