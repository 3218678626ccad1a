"""What surrounds the library: deployment, the local stack, staging and release."""
