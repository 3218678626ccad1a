"""``python -m workflows_engine``."""

import sys

from workflows_engine.cli import main

sys.exit(main())
