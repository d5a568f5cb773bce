//! Files that look like secrets: what a model should not see without somebody saying so.

use std::path::{Component, Path};

/// Directories in which everything is a secret.
const DIRECTORIES: &[&str] = &[".ssh", ".aws", ".gnupg", ".kube", ".azure", "gcloud"];

const NAMES: &[&str] = &[
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

const SUFFIXES: &[&str] = &[".pem", ".key", ".p12", ".pfx", ".jks", ".keystore"];

/// Templates of `.env` files hold names, not values.
const TEMPLATES: &[&str] = &[".example", ".sample", ".template"];

/// Whether a path names a file that usually holds keys or passwords. Only the name is looked at.
pub fn looks_secret(path: &Path) -> bool {
    let parts: Vec<String> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(part.to_string_lossy().to_lowercase()),
            Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .collect();
    let in_directory = parts.iter().any(|part| DIRECTORIES.contains(&part.as_str()));
    in_directory || parts.last().is_some_and(|name| is_secret_name(name))
}

fn is_secret_name(name: &str) -> bool {
    let is_environment = name == ".env" || name.starts_with(".env.");
    let is_template = TEMPLATES.iter().any(|template| name.ends_with(template));
    (is_environment && !is_template) || NAMES.contains(&name) || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_by_their_names() {
        let secret = [
            ".env",
            "a/.env",
            ".ENV",
            ".env.production",
            "server.pem",
            "tls/Private.KEY",
            "home/id_rsa",
            "id_ed25519",
            ".netrc",
            ".git-credentials",
            ".ssh/config",
            "x/.aws/credentials",
            ".kube/config",
            "credentials",
        ];
        let plain = [
            "env",
            ".envrc.md",
            ".env.example",
            ".env.sample",
            ".env.template",
            "key.md",
            "id_rsa.pub",
            "keys/readme.md",
            "monkey",
            "pem",
            "",
            ".",
            "..",
        ];
        for path in secret {
            assert!(looks_secret(Path::new(path)), "{path}");
        }
        for path in plain {
            assert!(!looks_secret(Path::new(path)), "{path}");
        }
    }
}
