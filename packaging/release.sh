#!/usr/bin/env bash
# Builds everything that is handed out and that can be built on this machine, into `dist/`, and says what it left out and why:
# static programs for Linux, for macOS on a Mac; a wheel, an npm package and an archive of each; the npm package that people
# name, the extension for VS Code, what each program is made of, licences, checksums. `.ci/install` gets what it takes.
#
#   packaging/release.sh                       all that can be built
#   packaging/release.sh TARGET...             these, as Rust calls them
#   LLM_DO_PROFILE=rehearsal packaging/release.sh x86_64-unknown-linux-musl
#                                              quickly, for tests of the packages: a larger and slower program
#   LLM_DO_DIST=DIRECTORY                      somewhere else than dist/
set -euo pipefail
cd "$(dirname "$0")/.."
source packaging/cross.sh

profile=${LLM_DO_PROFILE:-packaged}
dist=${LLM_DO_DIST:-dist}
built=${CARGO_TARGET_DIR:-target}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
targets=("$@")
if [[ ${#targets[@]} == 0 ]]; then
    targets=(x86_64-unknown-linux-musl aarch64-unknown-linux-musl aarch64-apple-darwin x86_64-apple-darwin)
fi

left_out() { printf 'left out: %s\n' "$*"; }

# Built on a Mac with its own tools: nothing else has the libraries of macOS to link with.
can_be_built() { # TARGET
    case $1 in
    *-apple-darwin)
        [[ $(uname -s) == Darwin ]] || { echo "a program for macOS is linked on a Mac: .github/workflows/release.yml has one"; return 1; }
        [[ -d $(rustc --print sysroot)/lib/rustlib/$1/lib ]] || { echo "needs rustup target add $1"; return 1; }
        ;;
    *) can_build_for "$1" | sed 's/^/needs /'; return "${PIPESTATUS[0]}" ;;
    esac
}

rm -rf "$dist"
mkdir -p "$dist"
programs=()
for target in "${targets[@]}"; do
    if ! why=$(can_be_built "$target"); then
        left_out "$target: $why"
        continue
    fi
    echo "building llm-do for $target ..." >&2
    (
        link=()
        if [[ $target != *-apple-darwin ]]; then
            build_for "$target"
            # Relocations take a fortieth of their room, and functions of the same code are one.
            link=(-C link-arg=-zpack-relative-relocs -C link-arg=--icf=all)
        fi
        cargo rustc --quiet --locked --profile "$profile" --target "$target" -p llm-do-cli --bin llm-do -- ${link[@]+"${link[@]}"}
    )
    programs+=("$target=$built/$target/$profile/llm-do")
    python3 packaging/bill.py "$target" >"$dist/llm-do-$version-$target.cdx.json"
done
if [[ ${#programs[@]} == 0 ]]; then
    echo "nothing could be built" >&2
    exit 1
fi

first=${programs[0]%%=*}
if command -v cargo-deny >/dev/null; then
    cargo deny --log-level error --target "$first" list --layout license >"$dist/LICENCES.txt"
else
    left_out "the list of licences by cargo-deny (cargo install --locked cargo-deny); LICENCES.txt is from the crates' own words"
    python3 packaging/bill.py "$first" --licences >"$dist/LICENCES.txt"
fi

python3 packaging/pack.py "$dist" "${programs[@]}"
(
    cd "$dist"
    sums=$(command -v sha256sum || echo "shasum -a 256")
    said=$($sums -- *)
    printf '%s\n' "$said" >SHA256SUMS
)
left_out "$(python3 - "${programs[@]}" <<'PYTHON'
import sys
known = {"x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl", "aarch64-apple-darwin", "x86_64-apple-darwin"}
missing = sorted(known - {word.split("=")[0] for word in sys.argv[1:]})
print("packages for " + ", ".join(missing) if missing else "nothing")
PYTHON
)"
