//! Files that look like secrets: what a model should not see without somebody saying so.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Component, Path};

/// Directories in which everything is a secret.
const DIRECTORIES: &[&str] = &[".ssh", ".aws", ".gnupg", ".kube", ".azure"];
/// Such directories with a name that means it only in another directory.
const NESTED: &[[&str; 2]] = &[[".config", "gcloud"], [".config", "gh"], [".docker", "config.json"]];

const NAMES: &[&str] = &[
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    ".dockercfg",
    ".vault-token",
    "credentials",
    "credentials.json",
    "oauth.json",
];

/// The half of a key that everybody may see.
const PUBLIC: &str = ".pub";
/// Names that start so, as people tell their keys apart.
const KEYS: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];

const SUFFIXES: &[&str] = &[".pem", ".key", ".p12", ".pfx", ".jks", ".keystore"];

/// Templates of `.env` files hold names, not values.
const TEMPLATES: &[&str] = &[".example", ".sample", ".template"];

/// What editors and people put behind a name that they keep.
const COPIES: &[&str] = &["~", ".bak", ".old", ".orig", ".swp", ".save"];

/// Whether a path names a file that usually holds keys or passwords. Only the name is looked at.
pub fn looks_secret(path: &Path) -> bool {
    let parts: Vec<Cow<'_, str>> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(in_lower_case(part)),
            Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .collect();
    let in_directory = parts.iter().any(|part| DIRECTORIES.contains(&&**part));
    let is_nested = parts.windows(2).any(|pair| NESTED.iter().any(|nested| pair == nested));
    in_directory || is_nested || parts.last().is_some_and(|name| is_secret_name(name))
}

/// Most names are in lower case already.
fn in_lower_case(part: &OsStr) -> Cow<'_, str> {
    match part.to_str() {
        Some(name) if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) => Cow::Borrowed(name),
        _ => Cow::Owned(part.to_string_lossy().to_lowercase()),
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = COPIES.iter().find_map(|copy| name.strip_suffix(copy)).unwrap_or(name);
    let is_environment = name == ".env" || name.starts_with(".env.");
    let is_template = TEMPLATES.iter().any(|template| name.ends_with(template));
    let is_key = KEYS.iter().any(|key| name.starts_with(key)) && !name.ends_with(PUBLIC);
    let is_named = NAMES.contains(&name) || SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    (is_environment && !is_template) || is_key || is_named
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
            ".config/gcloud/x",
            ".docker/config.json",
            "id_rsa_work",
            ".env.bak",
            ".env~",
            "server.key.old",
            "oauth.json",
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
            "gcloud/notes.md",
            "config.json",
            ".env.example.bak",
            "credentials.md",
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
