"""What runs on the Ray head: the supervisor of the training process, and its command line."""
