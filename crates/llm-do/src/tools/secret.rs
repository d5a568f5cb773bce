//! Files that look like secrets, by their names alone: reading them asks, whatever rule allows it.

use std::path::{Component, Path};

/// Directories that hold little else.
const DIRECTORIES: &[&str] = &[".ssh", ".aws", ".gnupg", ".azure", ".kube"];
const FILES: &[&str] = &[
    ".env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    "credentials",
    "credentials.json",
    "oauth.json",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ecdsa_sk",
    "id_ed25519_sk",
];
const ENDINGS: &[&str] = &[".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx"];
/// What people keep beside an `.env` file to show its shape.
const SPECIMENS: &[&str] = &[".example", ".sample", ".template"];

/// Whether a path names a file that looks like a secret, or something inside a directory of such files. Case does not
/// matter: on some disks it makes no difference.
pub fn looks_secret(path: &Path) -> bool {
    let mut names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
    });
    names.any(|name| is_secret_name(&name))
}

fn is_secret_name(name: &str) -> bool {
    let is_environment = name.starts_with(".env.") && !SPECIMENS.iter().any(|ending| name.ends_with(ending));
    is_environment
        || DIRECTORIES.contains(&name)
        || FILES.contains(&name)
        || ENDINGS.iter().any(|ending| name.ends_with(ending) && name.len() > ending.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_names() {
        let secrets = [
            ".env",
            "a/.env",
            ".env.local",
            ".ENV",
            ".env.example.bak",
            "x.pem",
            "dir/server.KEY",
            "id_rsa",
            "home/.ssh/config",
            ".ssh",
            ".aws/credentials",
            ".netrc",
            ".git-credentials",
            "./deep/er/id_ed25519",
        ];
        for path in secrets {
            assert!(looks_secret(Path::new(path)), "{path}");
        }
        let others = [
            ".env.example",
            ".env.sample",
            "web/.env.template",
            "env",
            "environment.md",
            "key",
            "keys/readme.md",
            "src/key.rs",
            "id_rsa.pub",
            "monkey",
            ".environment",
            "src/ssh.rs",
            "",
            ".",
            "..",
        ];
        for path in others {
            assert!(!looks_secret(Path::new(path)), "{path}");
        }
    }
}
