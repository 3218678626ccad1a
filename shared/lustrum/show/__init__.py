"""What a person sees: the report, its plots, the terminal view, the preview of a plan."""
