//! Links what happens before `main`, in C, since Rust has no safe way to say it. Packs relative relocations where the C library
//! can read them (glibc from 2.36 on): half a megabyte less in the file, and less to do before `main`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=closed_stdout.c");
    for object in cc::Build::new().file("closed_stdout.c").cargo_metadata(false).compile_intermediates() {
        // As an object: of a library only what somebody calls would be linked.
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let is_own = variable("TARGET") == variable("HOST") && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    // Other architectures are linked by the system's linker, which may not know how.
    if is_own && variable("CARGO_CFG_TARGET_ARCH") == "x86_64" && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

fn glibc() -> Option<(u32, u32)> {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    let (major, minor) = told.trim().rsplit(' ').next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
