"""What runs on the Ray head: the supervisor of the training process. Standard library only."""
