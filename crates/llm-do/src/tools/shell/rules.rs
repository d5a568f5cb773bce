//! The rules of a configured shell: which commands they match, and which of them are no rules at all because they would
//! allow everything.

use super::words::{self, Word};
use crate::escape::visible;
use crate::tools::approval::Rule;
use crate::tools::source::ShellRule;

/// Whether a rule is about a command: the command begins with its words.
pub fn matches(rule: &ShellRule, words: &[Word]) -> bool {
    rule.pattern.len() <= words.len() && rule.pattern.iter().zip(words).all(|(expected, word)| *expected == word.text)
}

/// The first rule that matches decides.
pub fn first_match<'r>(rules: &'r [ShellRule], words: &[Word]) -> Option<&'r ShellRule> {
    rules.iter().find(|rule| matches(rule, words))
}

/// What the rule says of a command that it matches: some words turn `allow` into `ask`.
pub fn verdict(rule: &ShellRule, words: &[Word]) -> Rule {
    let is_named = |word: &Word| {
        rule.approval_required_if_args.iter().any(|argument| {
            word.text == *argument
                || word.text.strip_prefix(argument.as_str()).is_some_and(|rest| rest.starts_with('='))
        })
    };
    match rule.approval {
        Rule::Allow if words.iter().any(is_named) => Rule::Ask,
        rule => rule,
    }
}

/// Whether an example is decided as it says: by this rule (of a list of them), or not by this rule.
pub fn check_example(rules: &[ShellRule], at: usize, example: &str, should_match: bool) -> Result<(), String> {
    let words = words::split(example)
        .map_err(|reason| format!("the example `{}` is no command: {reason}", visible(example)))?;
    let decided_by = rules.iter().position(|rule| matches(rule, &words));
    let shown = visible(example);
    match (should_match, decided_by) {
        (true, Some(found)) if found == at => Ok(()),
        (true, Some(found)) => {
            let other = visible(&rules[found].pattern.join(" ")).into_owned();
            Err(format!("the example `{shown}` is decided by an earlier rule, `{other}`"))
        }
        (true, None) => Err(format!("the example `{shown}` does not match its rule")),
        (false, Some(found)) if found == at => {
            Err(format!("the example `{shown}` matches the rule that it should not"))
        }
        (false, _) => Ok(()),
    }
}

/// Why a rule must not allow this on its own, if so: allowing the program is allowing any program.
pub fn danger(pattern: &[String]) -> Option<String> {
    let (program, rest) = pattern.split_first()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    let versionless = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let known = |names: &[&str]| names.contains(&name) || names.contains(&versionless);
    if known(WRAPPERS) {
        return Some(format!("`{name}` runs any other program"));
    }
    if known(INTERPRETERS) {
        return Some(format!("`{name}` runs any code"));
    }
    let (_, subcommands) = BUILDERS.iter().find(|(builder, _)| *builder == name || *builder == versionless)?;
    match rest.first() {
        None => Some(format!("`{name}` alone runs any code: name a subcommand")),
        Some(first) if first.starts_with('-') => {
            Some(format!("`{name} {}` leaves the subcommand open", visible(first)))
        }
        Some(first) if subcommands.contains(&first.as_str()) => Some(format!("`{name} {first}` runs any code")),
        Some(_) => None,
    }
}

const WRAPPERS: &[&str] = &[
    "busybox",
    "chroot",
    "chrt",
    "command",
    "doas",
    "docker",
    "entr",
    "env",
    "eval",
    "exec",
    "fakeroot",
    "find",
    "firejail",
    "flock",
    "ionice",
    "kubectl",
    "ltrace",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "pkexec",
    "podman",
    "rlwrap",
    "rsync",
    "run0",
    "runuser",
    "scp",
    "script",
    "setpriv",
    "setsid",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "toybox",
    "unshare",
    "watch",
    "xargs",
];

const INTERPRETERS: &[&str] = &[
    "ash",
    "awk",
    "bash",
    "bun",
    "bunx",
    "cmake",
    "csh",
    "dash",
    "deno",
    "dotnet",
    "ed",
    "elixir",
    "emacs",
    "erl",
    "ex",
    "expect",
    "fish",
    "gawk",
    "gdb",
    "ghci",
    "gradle",
    "groovy",
    "guile",
    "java",
    "jshell",
    "julia",
    "just",
    "ksh",
    "lua",
    "luajit",
    "make",
    "gmake",
    "man",
    "mawk",
    "meson",
    "mvn",
    "nawk",
    "nim",
    "ninja",
    "node",
    "nodejs",
    "npx",
    "ocaml",
    "osascript",
    "perl",
    "php",
    "pip",
    "pnpx",
    "psql",
    "pwsh",
    "pypy",
    "python",
    "rake",
    "rg",
    "Rscript",
    "ruby",
    "runghc",
    "scala",
    "sed",
    "sh",
    "sqlite",
    "swift",
    "tar",
    "tclsh",
    "ts-node",
    "tsx",
    "uvx",
    "vi",
    "view",
    "vim",
    "nvim",
    "zip",
    "zsh",
    "less",
    "more",
];

/// Programs with subcommands, and those of them that run what a project brings along.
const BUILDERS: &[(&str, &[&str])] = &[
    ("git", &["bisect", "config", "difftool", "filter-branch", "grep", "help", "mergetool", "rebase", "submodule"]),
    (
        "cargo",
        &[
            "b", "bench", "build", "c", "check", "clippy", "d", "doc", "fix", "install", "miri", "nextest", "package",
            "publish", "r", "run", "rustc", "rustdoc", "t", "test",
        ],
    ),
    ("go", &["build", "generate", "install", "run", "test", "tool", "vet"]),
    (
        "npm",
        &[
            "ci",
            "exec",
            "explore",
            "i",
            "init",
            "install",
            "rebuild",
            "run",
            "run-script",
            "start",
            "stop",
            "t",
            "test",
            "x",
        ],
    ),
    ("pnpm", &["add", "dlx", "exec", "i", "install", "run", "start", "t", "test"]),
    ("yarn", &["add", "dlx", "exec", "install", "node", "run", "start", "test"]),
    ("bundle", &["exec", "install"]),
    ("poetry", &["build", "install", "run", "shell"]),
    ("uv", &["build", "pip", "run", "sync", "tool"]),
    ("gh", &["alias", "api", "extension", "run"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pattern: &str) -> ShellRule {
        ShellRule {
            pattern: pattern.split(' ').map(str::to_owned).collect(),
            approval: Rule::Allow,
            approval_required_if_args: vec!["--force".to_owned(), "-D".to_owned()],
            matches: Vec::new(),
            not_matches: Vec::new(),
            i_understand: false,
        }
    }

    #[test]
    fn patterns_are_the_leading_words() {
        for (pattern, command, expected) in [
            ("git push", "git push origin", true),
            ("git push", "'git' \"push\"", true),
            ("git push", "git  push", true),
            ("git push", "git pushx", false),
            ("git push", "git", false),
            ("git", "gitx status", false),
            ("ls", "lsof", false),
            ("git push", "git -C x push", false),
        ] {
            assert_eq!(matches(&rule(pattern), &words::split(command).unwrap()), expected, "{pattern}: {command}");
        }
    }

    #[test]
    fn some_words_turn_allow_into_ask() {
        for (command, expected) in [
            ("git push", Rule::Allow),
            ("git push --force", Rule::Ask),
            ("git push --force=yes", Rule::Ask),
            ("git push --forceful", Rule::Allow),
            ("git push '-D'", Rule::Ask),
        ] {
            assert_eq!(verdict(&rule("git push"), &words::split(command).unwrap()), expected, "{command}");
        }
        let asks = ShellRule { approval: Rule::Block, ..rule("x") };
        assert_eq!(verdict(&asks, &words::split("x -D").unwrap()), Rule::Block);
    }

    #[test]
    fn examples_say_which_rule_decides() {
        let rules = [rule("git push"), rule("git"), rule("ls")];
        assert_eq!(check_example(&rules, 1, "git log", true), Ok(()));
        assert_eq!(check_example(&rules, 1, "git push", false), Ok(()));
        for (at, example, should_match, said) in [
            (1, "git push", true, "an earlier rule"),
            (2, "cat", true, "does not match"),
            (2, "ls -l", false, "should not"),
            (0, "a | b", true, "no command"),
        ] {
            let error = check_example(&rules, at, example, should_match).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_runs_anything_is_dangerous_to_allow() {
        for pattern in [
            "env",
            "xargs",
            "python",
            "python3",
            "python3.12",
            "/usr/bin/python3",
            "make",
            "git",
            "cargo",
            "cargo test",
            "go test",
            "npm run",
            "npm run build",
            "docker",
            "sudo ls",
            "bash -c",
            "awk",
            "sed",
            "find",
            "rg",
            "tar",
            "timeout 5",
            "busybox sh",
            "git -c",
            "perl",
            "node",
            "gawk",
            "sh",
            "ssh host",
            "pip3",
            "npx",
        ] {
            let words: Vec<String> = pattern.split(' ').map(str::to_owned).collect();
            assert!(danger(&words).is_some(), "{pattern}");
        }
        for pattern in [
            "ls",
            "git push",
            "git commit",
            "cargo fmt",
            "cargo tree",
            "jq",
            "date",
            "wc -l",
            "npm ls",
            "mkdir",
            "go doc",
        ] {
            let words: Vec<String> = pattern.split(' ').map(str::to_owned).collect();
            assert_eq!(danger(&words), None, "{pattern}");
        }
    }
}
