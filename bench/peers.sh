#!/usr/bin/env bash
# The same work through llm-do, the bare HTTP client below it and its peers: one command, nothing to set up. Peers come
# from the package registries into a cache, `target/peers`; one that cannot be had is named and left out.
# `--help` tells the flags; bench/README.md what the figures mean.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "bench/peers.sh needs python3, 3.10 or later" >&2
    exit 1
fi
exec python3 -B "$(dirname "$0")/peers/compare.py" "$@"
