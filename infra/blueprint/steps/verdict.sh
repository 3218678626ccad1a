#!/usr/bin/env bash
# The build fails if its work did.
set -euo pipefail
cp result.json "$BUILDER_OUTPUT/output"
cat result.json
python3 -c 'import json, sys; sys.exit(0 if json.load(open("result.json"))["ok"] else 1)'
