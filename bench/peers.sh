#!/usr/bin/env bash
# The same work through llm-do, the bare HTTP client below it and its peers: one command, nothing to set up. Peers come
# from the package registries into a cache, `target/peers`; one that cannot be had is named and left out.
# See bench/README.md for what the figures mean.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/peers"
target=$(cd "$target" && pwd)

echo "building ..." >&2
cargo build --quiet --release --locked -p llm-do-cli -p fake-llm -p bench
if ! CARGO_TARGET_DIR=$target/peers/rust cargo build --quiet --release --locked --manifest-path bench/peers/rust/Cargo.toml; then
    echo "rig-core and genai cannot be built here: they are left out" >&2
fi
if [[ ! -x $target/peers/python/bin/python ]] || ! cmp -s bench/peers/python/requirements.txt "$target/peers/python/installed"; then
    if python3 -m venv --clear "$target/peers/python" &&
        "$target/peers/python/bin/pip" install --quiet --disable-pip-version-check -r bench/peers/python/requirements.txt; then
        cp bench/peers/python/requirements.txt "$target/peers/python/installed"
    else
        echo "pydantic-ai-slim, openai-agents and llm cannot be installed here: they are left out" >&2
    fi
fi
exec python3 bench/peers/compare.py --target "$target" "$@"
