"""The workflow engine's command line under its earlier name; the engine is `workflows_engine`."""
