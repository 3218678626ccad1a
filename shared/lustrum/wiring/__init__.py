"""What joins settings, adapters and HTTP for the functions and the command."""
