"""``python -m infra.local.workflows``."""

import sys

from infra.local.workflows.cli import main

sys.exit(main())
