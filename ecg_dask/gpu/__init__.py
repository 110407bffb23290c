"""What only GPU workers need: which GPUs there are, and the one memory pool of a worker."""
