//! Files that look like secrets: what a model should not see before the approver has agreed.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Directories in which everything is a secret. All of them are hidden.
const DIRECTORIES: &[&str] =
    &[".ssh", ".aws", ".gnupg", ".kube", ".azure", ".terraform.d", ".password-store", ".snowflake"];
/// Names that are secrets only in another directory, which comes first. A `*` at the end stands for anything.
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

/// The ending of the public half of a key, which is no secret.
const PUBLIC: &str = ".pub";
/// How the names of keys begin; people add something to tell their keys apart.
const KEYS: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];
/// How names of other secrets begin, whatever follows.
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
pub(crate) fn looks_secret(path: &Path) -> bool {
    let parts = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    let mut parts = parts.filter(|part| !matches!(*part, b"" | b"." | b".."));
    let Some(last) = parts.next_back() else { return false };
    let mut before: &[u8] = b"";
    for part in parts {
        if is_in_secret_place(before, part, in_lower_case) {
            return true;
        }
        before = part;
    }
    let last = in_lower_case(last);
    let name = without_copies(&last);
    is_in_secret_place(before, name.as_bytes(), |_| Cow::Borrowed(name)) || is_secret_name(name)
}

/// Whether a name says that all beneath it is a secret, by itself or with the directory that it is in. `lower_case` gives the
/// name as it is compared, which few names need.
fn is_in_secret_place<'a>(before: &[u8], name: &'a [u8], lower_case: impl Fn(&'a [u8]) -> Cow<'a, str>) -> bool {
    let is_hidden = name.first() == Some(&b'.');
    // How the names in `NESTED` begin, in whatever case.
    let may_nest = matches!(before.first(), Some(b'.' | b's' | b'S'));
    if !is_hidden && !may_nest {
        return false;
    }
    let name = lower_case(name);
    let is_nested = || {
        let before = in_lower_case(before);
        NESTED.iter().any(|[directory, nested]| *directory == before && is_called(&name, nested))
    };
    (is_hidden && DIRECTORIES.contains(&&*name)) || (may_nest && is_nested())
}

/// Whether a file that looks like a secret is one when it is only met on the way through a tree. Every repository has a
/// `.git/config`, and few of them hold a password: that one is looked into.
pub(crate) fn is_met(path: &Path, read: impl FnOnce() -> Option<Vec<u8>>) -> bool {
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

fn is_called(name: &str, known: &str) -> bool {
    match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == known,
    }
}

/// `.env.bak~` is `.env`.
fn without_copies(name: &str) -> &str {
    let mut name = name;
    while let Some(kept) = COPIES.iter().find_map(|copy| name.strip_suffix(copy)) {
        name = kept;
    }
    name
}

/// A name in lower case; most names are that already, and are not copied.
fn in_lower_case(part: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(part) {
        Ok(name) if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) => Cow::Borrowed(name),
        _ => Cow::Owned(String::from_utf8_lossy(part).to_lowercase()),
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

    /// Others are not looked at any closer.
    #[test]
    fn the_tables_begin_as_the_search_expects() {
        assert!(DIRECTORIES.iter().all(|name| name.starts_with('.')));
        assert!(NESTED.iter().all(|[directory, _]| directory.starts_with(['.', 's'])));
        for path in ["a/STATE/LLM-DO/key", ".Config/GH/hosts.yml", "home/.SSH/x", "x/.Git/Config"] {
            assert!(looks_secret(Path::new(path)), "{path}");
        }
    }

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

    /// What the rules say, rule by rule and without a short cut.
    fn looks_secret_plainly(path: &str) -> bool {
        let normal = |part: &&str| !matches!(*part, "" | "." | "..");
        let mut parts: Vec<String> = path.split('/').filter(normal).map(str::to_lowercase).collect();
        if let Some(name) = parts.last_mut() {
            *name = without_copies(name).to_owned();
        }
        let in_directory = parts.iter().any(|part| DIRECTORIES.contains(&part.as_str()));
        let is_nested = parts
            .windows(2)
            .any(|pair| NESTED.iter().any(|[directory, name]| pair[0] == *directory && is_called(&pair[1], name)));
        in_directory || is_nested || parts.last().is_some_and(|name| is_secret_name(name))
    }

    #[test]
    fn a_short_cut_changes_nothing() {
        let known = DIRECTORIES.iter().chain(NAMES).chain(KEYS).chain(SUFFIXES).chain(NESTED.iter().flatten());
        let others =
            [".", "..", "", "a", ".ENV", "Key.PEM", "credentials.toml", "~", ".bak", "id_rsa.pub~", "Kube", "ſ"];
        let names: Vec<&str> = known.copied().chain(others).collect();
        for (one, two) in names.iter().flat_map(|one| names.iter().map(move |two| (one, two))) {
            for path in
                [format!("{one}/{two}"), format!("/x/{one}/{two}/y"), format!("{one}{two}"), format!("{one}/{two}~")]
            {
                assert_eq!(looks_secret(Path::new(&path)), looks_secret_plainly(&path), "{path}");
            }
        }
        assert!(DIRECTORIES.iter().all(|name| name.starts_with('.')));
        assert!(NESTED.iter().all(|[directory, _]| directory.starts_with(['.', 's'])));
    }

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
