"""``python -m infra.local.workflows run|check|serve``: what ``workflows-engine`` does."""

import sys

from workflows_engine.cli import main

sys.exit(main())
