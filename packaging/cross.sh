# Sourced: what it takes to build for other targets than this machine's own. Only C parts need a compiler of the target (`ring`,
# `stacker`), and zig is one for all of them; Rust brings along what it needs to link static Linux programs.

# Where `.ci/install` puts zig.
zig_python() {
    local target=${CARGO_TARGET_DIR:-target}
    [[ $target == /* ]] || target=$PWD/$target
    printf '%s\n' "$target/parts/zig/bin/python"
}

# Whether code for a Rust target can be compiled here; if not, says what is missing.
can_build_for() { # RUST_TARGET
    if [[ ! -d $(rustc --print sysroot)/lib/rustlib/$1/lib ]]; then
        printf 'the Rust target (rustup target add %s)\n' "$1"
        return 1
    fi
    if ! "$(zig_python)" -m ziglang version >/dev/null 2>&1; then
        printf 'zig (.ci/install)\n'
        return 1
    fi
}

# Compilers and the linker for a Rust target, as cargo wants to be told.
build_for() { # RUST_TARGET
    local zig_target name tools
    case $1 in
    *-apple-darwin) zig_target=${1%%-*}-macos ;;
    *-linux-musl) zig_target=${1%%-*}-linux-musl ;;
    *) echo "no compiler is known for $1" >&2; return 1 ;;
    esac
    name=${1//-/_}
    tools=$(dirname "$(dirname "$(zig_python)")")/for/$1
    mkdir -p "$tools"
    # rustc and zig call the same target by different names; what the build of a C part says about it is left out.
    cat >"$tools/cc" <<SCRIPT
#!/usr/bin/env bash
arguments=()
for argument; do
    case \$argument in
    --target=* | -mmacosx-version-min=* | -arch | arm64 | x86_64) ;;
    *) arguments+=("\$argument") ;;
    esac
done
exec "$(zig_python)" -m ziglang cc -target $zig_target "\${arguments[@]}"
SCRIPT
    printf '#!/bin/sh\nexec "%s" -m ziglang ar "$@"\n' "$(zig_python)" >"$tools/ar"
    chmod +x "$tools/cc" "$tools/ar"
    export "CC_$name=$tools/cc" "AR_$name=$tools/ar"
    if [[ $1 == *-linux-musl ]]; then
        export "CARGO_TARGET_${name^^}_LINKER=rust-lld"
    fi
}
