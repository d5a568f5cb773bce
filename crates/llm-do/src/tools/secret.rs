//! Files that look like secrets: what a model should not see without somebody saying so.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Component, Path};

/// Directories in which everything is a secret.
const DIRECTORIES: &[&str] =
    &[".ssh", ".aws", ".gnupg", ".kube", ".azure", ".terraform.d", ".password-store", ".snowflake"];
/// Names that mean it only in another directory. A `*` at the end stands for anything.
const NESTED: &[[&str; 2]] = &[
    [".config", "gcloud"],
    [".config", "gh"],
    [".config", "hub"],
    [".config", "llm-do"],
    [".cache", "llm-do"],
    ["state", "llm-do"],
    [".docker", "config.json"],
    [".git", "config"],
    [".cargo", "credentials*"],
    [".codex", "auth.json"],
    [".claude", ".credentials.json"],
    [".gemini", "oauth_creds.json"],
    [".composer", "auth.json"],
    [".m2", "settings.xml"],
    [".fly", "config.yml"],
];

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
    ".envrc",
    ".boto",
    ".s3cfg",
    ".my.cnf",
    ".databrickscfg",
    "credentials",
    "credentials.json",
    "oauth.json",
    "secrets.yaml",
    "secrets.yml",
    "secrets.json",
    "secrets.toml",
    "kubeconfig",
    "rclone.conf",
    "token",
];

/// The half of a key that everybody may see.
const PUBLIC: &str = ".pub";
/// Names that start so, as people tell their keys apart.
const KEYS: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];
/// The same, whatever follows.
const STARTS: &[&str] = &[".openai", "api_key"];

const SUFFIXES: &[&str] = &[
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".jks",
    ".keystore",
    ".keyring",
    ".kdbx",
    ".ppk",
    ".tfstate",
    ".tfstate.backup",
    ".tfvars",
    ".tfvars.json",
];

/// Templates of `.env` files hold names, not values.
const TEMPLATES: &[&str] = &[".example", ".sample", ".template"];

/// What editors and people put behind a name that they keep.
const COPIES: &[&str] = &["~", ".bak", ".old", ".orig", ".swp", ".save"];

/// Whether a path names a file that usually holds keys or passwords. Only the name is looked at.
pub fn looks_secret(path: &Path) -> bool {
    let mut parts: Vec<Cow<'_, str>> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(in_lower_case(part)),
            Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .collect();
    if let Some(name) = parts.last_mut() {
        let kept = without_copies(name).len();
        match name {
            Cow::Borrowed(name) => *name = &name[..kept],
            Cow::Owned(name) => name.truncate(kept),
        }
    }
    let in_directory = parts.iter().any(|part| DIRECTORIES.contains(&&**part));
    let is_nested = parts.windows(2).any(|pair| NESTED.iter().any(|nested| is_pair(pair, nested)));
    in_directory || is_nested || parts.last().is_some_and(|name| is_secret_name(name))
}

/// Whether a file that looks like a secret is one when it is only met on the way through a tree. Every repository has a
/// `.git/config`, and few of them hold a password: that one is looked into.
pub fn is_met(path: &Path, read: impl FnOnce() -> Option<Vec<u8>>) -> bool {
    let is_configuration = path.file_name().is_some_and(|name| name == "config")
        && path.parent().and_then(Path::file_name).is_some_and(|name| name == ".git");
    if !is_configuration {
        return looks_secret(path);
    }
    let Some(content) = read() else { return true };
    let text = String::from_utf8_lossy(&content).to_lowercase();
    let has_password = |line: &str| line.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    let words = ["extraheader", "password", "token", "[credential", "cookie", "secret"];
    text.lines().any(|line| has_password(line) || words.iter().any(|word| line.contains(word)))
}

fn is_pair(pair: &[Cow<'_, str>], nested: &[&str; 2]) -> bool {
    let [directory, name] = nested;
    let is_name = match name.strip_suffix('*') {
        Some(start) => pair[1].starts_with(start),
        None => pair[1] == *name,
    };
    pair[0] == *directory && is_name
}

/// `.env.bak~` is `.env`.
fn without_copies(name: &str) -> &str {
    let mut name = name;
    while let Some(kept) = COPIES.iter().find_map(|copy| name.strip_suffix(copy)) {
        name = kept;
    }
    name
}

/// Most names are in lower case already.
fn in_lower_case(part: &OsStr) -> Cow<'_, str> {
    match part.to_str() {
        Some(name) if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) => Cow::Borrowed(name),
        _ => Cow::Owned(part.to_string_lossy().to_lowercase()),
    }
}

fn is_secret_name(name: &str) -> bool {
    let is_environment = name == ".env" || name.starts_with(".env.");
    let is_template = TEMPLATES.iter().any(|template| name.ends_with(template));
    let is_key = KEYS.iter().any(|key| name.starts_with(key)) && !name.ends_with(PUBLIC);
    let is_history = name.starts_with('.') && name.ends_with("_history");
    let is_account = name.starts_with("service-account") && name.strip_suffix(".json").is_some();
    let is_named = NAMES.contains(&name)
        || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || STARTS.iter().any(|start| name.starts_with(start));
    (is_environment && !is_template) || is_key || is_history || is_account || is_named
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[&str] = &[
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
        ".envrc",
        "sub/.git/config",
        ".cargo/credentials",
        ".cargo/credentials.toml",
        ".terraform.d/credentials.tfrc.json",
        "prod.tfstate",
        "prod.tfstate.backup",
        "prod.tfvars",
        "deep/secrets.yaml",
        "secrets.yml",
        "secrets.json",
        "SECRETS.toml",
        "service-account.json",
        "service-account-prod.json",
        "kubeconfig",
        ".boto",
        ".s3cfg",
        ".my.cnf",
        ".bash_history",
        ".psql_history",
        ".codex/auth.json",
        ".claude/.credentials.json",
        ".gemini/oauth_creds.json",
        ".composer/auth.json",
        ".m2/settings.xml",
        "passwords.kdbx",
        "putty.ppk",
        ".password-store/mail.gpg",
        "login.keyring",
        ".config/rclone/rclone.conf",
        ".databrickscfg",
        ".snowflake/config.toml",
        ".openai",
        ".openai_key",
        "var/token",
        "api_key",
        "api_key.txt",
        ".fly/config.yml",
        ".config/hub",
        ".config/llm-do/config.toml",
        ".local/state/llm-do/key",
        ".cache/llm-do/python/x.py",
        "secrets.yaml~",
        ".git/config.orig",
        ".Bash_History.save",
        "token.swp",
        ".env.bak~",
    ];

    const ORDINARY: &[&str] = &[
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
        "secrets.md",
        "token.rs",
        "tokens/readme.md",
        "config",
        "git/config",
        ".git/HEAD",
        ".cargo/config.toml",
        "settings.xml",
        "history",
        "browser_history",
        "service-account.md",
        "llm-do/notes.md",
        "pem",
        "",
        ".",
        "..",
    ];

    #[test]
    fn secrets_are_told_by_their_names() {
        for path in SECRET {
            assert!(looks_secret(Path::new(path)), "{path}");
        }
        for path in ORDINARY {
            assert!(!looks_secret(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn the_configuration_of_a_repository_is_looked_into_where_it_is_only_met() {
        let met = |text: &str| is_met(Path::new("a/.git/config"), || Some(text.as_bytes().to_vec()));
        assert!(!met("[remote \"origin\"]\n\turl = https://example.org/x.git\n"));
        assert!(!met("[remote \"origin\"]\n\turl = git@example.org:x.git\n"));
        for text in ["url = https://me:word@example.org/x", "[http]\n extraHeader = A: b", "[credential]\n"] {
            assert!(met(text), "{text}");
        }
        assert!(is_met(Path::new(".git/config"), || None), "what cannot be read may be anything");
        assert!(is_met(Path::new(".env"), || None) && !is_met(Path::new("notes"), || None));
    }
}
