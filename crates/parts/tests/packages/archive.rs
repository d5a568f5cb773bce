//! The archive and the static program in it, and what lies beside the packages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_llm::{Constant, FakeLlm, FakeReply, Transport};
use parts::{is_wanted, printed, repository};
use tempfile::TempDir;

use crate::{dist, package, static_target, tour, version, without_compiler};

fn unpacked() -> (TempDir, PathBuf) {
    let place = parts::workplace();
    let archive = package("llm-do-", &format!("-{}.tar.gz", static_target()));
    printed(Command::new("tar").arg("-xzf").arg(archive).current_dir(place.path()));
    let root = place.path().join(format!("llm-do-{}-{}", version(), static_target()));
    (place, root)
}

#[test]
fn it_contains_all_that_is_promised_and_the_program_runs_from_it() {
    if !is_wanted("packages") {
        return;
    }
    let (place, root) = unpacked();
    for there in [
        "bin/llm-do",
        "share/man/man1/llm-do.1",
        "share/man/man1/llm-do-run.1",
        "share/bash-completion/completions/llm-do",
        "share/zsh/site-functions/_llm-do",
        "share/fish/vendor_completions.d/llm-do.fish",
        "share/llm-do/schemas/project.json",
        "share/apparmor/llm-do",
        "share/vim/vimfiles/ftdetect/llm-do.vim",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "LICENCES.txt",
        "README.md",
        "CHANGELOG.md",
    ] {
        assert!(root.join(there).metadata().is_ok_and(|file| file.len() > 0), "{there}");
    }
    tour(without_compiler(root.join("bin/llm-do"), "/nowhere", place.path()), &place);
}

#[test]
fn the_program_is_static() {
    if !is_wanted("packages") {
        return;
    }
    let (_place, root) = unpacked();
    let said = Command::new("ldd").arg(root.join("bin/llm-do")).output().unwrap();
    let said = [said.stdout, said.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("not a dynamic executable") || said.contains("statically linked"), "{said}");
}

#[test]
fn checksums_are_those_of_the_files() {
    if !is_wanted("packages") {
        return;
    }
    let said = printed(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(dist()));
    let files = fs::read_dir(dist()).unwrap().count();
    assert_eq!(said.lines().filter(|line| line.ends_with(": OK")).count(), files - 1, "{said}");
}

#[test]
fn every_crate_that_is_linked_is_listed() {
    if !is_wanted("packages") {
        return;
    }
    let bill = fs::read_to_string(package("llm-do-", &format!("{}.cdx.json", static_target()))).unwrap();
    let listed: BTreeSet<String> = bill.lines().filter_map(purl).collect();
    let mut tree = Command::new("cargo");
    tree.args(["tree", "--locked", "-p", "llm-do-cli", "--edges", "normal,no-proc-macro", "--prefix", "none"]);
    tree.args(["--format", "{p}", "--target", &static_target()]).current_dir(repository());
    let expected: BTreeSet<String> = printed(&mut tree).lines().filter_map(named).collect();
    assert!(expected.len() > 100, "{}", expected.len());
    assert_eq!(listed, expected);
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    for listed in &listed {
        let (name, version) = listed.split_once('@').unwrap();
        assert!(lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"")), "{listed}");
    }
}

/// `"purl": "pkg:cargo/NAME@VERSION"` → `NAME@VERSION`.
fn purl(line: &str) -> Option<String> {
    Some(line.split_once("pkg:cargo/")?.1.split('"').next()?.to_owned())
}

/// `NAME vVERSION …` → `NAME@VERSION`.
fn named(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    Some(format!("{}@{}", words.next()?, words.next()?.strip_prefix('v')?))
}

#[test]
fn the_extension_is_a_language_and_schemas() {
    if !is_wanted("packages") {
        return;
    }
    let place = TempDir::new().unwrap();
    let unzip = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])";
    printed(Command::new("python3").args(["-c", unzip]).arg(package("llm-do-", ".vsix")).arg(place.path()));
    let read = |path: &str| fs::read_to_string(place.path().join(path)).unwrap();
    assert!(read("[Content_Types].xml").contains(".vsixmanifest"));
    assert!(read("extension.vsixmanifest").contains(&format!("Version=\"{}\"", version())));
    let manifest = read("extension/package.json");
    assert!(manifest.contains("\".worker\"") && !manifest.contains("\"main\""), "{manifest}");
    for (_, path) in manifest.match_indices("\"./").map(|(at, _)| (at, manifest[at + 3..].split('"').next().unwrap())) {
        assert!(Path::new(&place.path().join("extension").join(path)).exists(), "{path}");
    }
}

/// Resolves no name, finds no library, no certificates of a system and no `/dev`: it brings what it needs.
#[test]
fn the_program_alone_in_an_empty_root_answers_over_tls() {
    if !is_wanted("packages") {
        return;
    }
    let (_place, root) = unpacked();
    let empty = TempDir::new().unwrap();
    fs::copy(root.join("bin/llm-do"), empty.path().join("llm-do")).unwrap();
    fs::write(empty.path().join("main.worker"), "---\nname: main\n---\nAnswer.\n").unwrap();
    let provider =
        FakeLlm::start_on(Transport::Tls, Constant::tool_loop(0, FakeReply::text(""), FakeReply::text("Hello.")));
    fs::write(empty.path().join("ca.pem"), provider.ca_pem()).unwrap();
    // A directory becomes the root of a process for root, or for whoever is root of a namespace of his own.
    let is_root = printed(Command::new("id").arg("-u")).trim() == "0";
    let mut alone = Command::new(if is_root { "chroot" } else { "unshare" });
    if !is_root {
        alone.args(["--user", "--map-root-user", "chroot"]);
    }
    alone.arg(empty.path()).args(["/llm-do", "run", "/main.worker", "Hi"]);
    alone.args(["--ephemeral", "-q", "-m", "anthropic:claude-haiku-4-5"]).stdin(std::process::Stdio::null());
    alone.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("ANTHROPIC_API_KEY", "key");
    alone.env("ANTHROPIC_BASE_URL", provider.url()).env("SSL_CERT_FILE", "/ca.pem").env("LLM_DO_TRUST", "1");
    assert_eq!(printed(&mut alone), "Hello.\n");
    assert!(provider.url().starts_with("https://"), "{}", provider.url());
    // An authority that nobody named is not believed.
    let refused = alone.env("SSL_CERT_FILE", "/nothing.pem").output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
}
