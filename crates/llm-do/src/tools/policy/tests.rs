use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::syntax::diagnostic::Colour;
use crate::tools::approval::canonical;

fn read(text: &str) -> Result<Vec<Arc<LastingRule>>, String> {
    read_rules(&[rule_file("rules.toml", text, RuleSource::Yours)]).map_err(|report| report.render(Colour::Plain))
}

fn rule_file(name: &str, text: &str, source: RuleSource) -> RuleFile {
    RuleFile { path: PathBuf::from(name), label: name.to_owned(), text: text.to_owned(), source }
}

fn in_force(text: &str) -> LastingRules {
    LastingRules::in_force(read(text).unwrap(), Path::new("/home/ann/release"), Some("2026-11-18"))
}

fn path(names: &str) -> Vec<String> {
    names.split(' ').map(str::to_owned).collect()
}

fn file(name: &str) -> CallSubject {
    CallSubject::File { name: name.to_owned(), root: "/home/ann/release".to_owned() }
}

fn words(words: &str) -> CallSubject {
    CallSubject::Words(path(words))
}

/// Whether one of the rules speaks of the call.
fn speaks(rules: &LastingRules, tool: &str, names: &str, arguments: &Value, subject: Option<&CallSubject>) -> bool {
    let (path, arguments) = (path(names), RawJson::of(arguments));
    let call = RuledCall { tool, path: &path, arguments: Some(&arguments), subject };
    rules.speaking_of(call).next().is_some()
}

#[test]
fn the_documented_file_is_read() {
    let text = r#"
[[rule]]
allow = "write_file"
agent = "editor"                  # path of agents, globs per part: "support > cashier"; omitted = any
project = "/home/ann/release"     # omitted = all projects
path = "drafts/*.md"              # any argument by name: a glob for texts, or { equals = … }, { under = "drafts" }, { max = 100 }
expires = 2026-12-16
example = ["drafts/a.md"]         # must match, checked at load
never = ["drafts/../x.md"]        # must not

[[rule]]
allow = "shell"
words = ["cargo", "test", "..."]  # whole words of the judged command; "..." only last; no globs inside a word unless quoted as { glob = "*.rs" }

[[rule]]
ask = "publish"                   # or block = …
"#;
    let rules = read(text).unwrap();
    let places: Vec<&str> = rules.iter().map(|rule| rule.place()).collect();
    assert_eq!(places, ["rules.toml:2", "rules.toml:11", "rules.toml:15"]);
    assert_eq!(
        rules[0].shown(),
        r#"allow = "write_file"  agent = "editor"  project = "/home/ann/release"  path = "drafts/*.md"  expires = "2026-12-16""#
    );
}

/// The rule, the tool, who calls, with what, about what, and whether it is about that.
type Case = (&'static str, &'static str, &'static str, Value, Option<CallSubject>, bool);

#[test]
fn a_rule_is_about_what_it_says() {
    let cases: &[Case] = &[
        ("allow='f'", "f", "main", json!({}), None, true),
        ("allow='f'", "g", "main", json!({}), None, false),
        // Searching is another way to read, whatever it is called with.
        ("block='read_file'", "search_files", "main", json!({"pattern": "x"}), None, true),
        ("block='read_file'\npath='a/*'", "search_files", "main", json!({"pattern": "x", "path": "b"}), None, true),
        ("ask='n_read_file'", "n_search_files", "main", json!({}), None, true),
        ("allow='read_file'", "search_files", "main", json!({}), None, false),
        ("ask='read_file'", "list_files", "main", json!({}), None, false),
        ("allow='hub_*'", "hub_get", "main", json!({}), None, true),
        ("allow='f'\nagent='editor'", "f", "main editor", json!({}), None, true),
        ("allow='f'\nagent='editor'", "f", "editor code", json!({}), None, false),
        ("block='f'\nagent='editor'", "f", "editor code", json!({}), None, true),
        ("ask='f'\nagent='support > cashier'", "f", "main support cashier", json!({}), None, true),
        ("ask='f'\nagent='support > cashier'", "f", "main cashier support", json!({}), None, false),
        ("allow='f'\nproject='/home/ann/other'", "f", "main", json!({}), None, false),
        ("allow='f'\nexpires='2026-11-18'", "f", "main", json!({}), None, true),
        ("allow='f'\nexpires='2026-11-17'", "f", "main", json!({}), None, false),
        // A file is what is opened, not what it is called.
        ("allow='w'\npath='d/*.md'", "w", "a", json!({"path": "x"}), Some(file("d/a.md")), true),
        ("allow='w'\npath='d/*.md'", "w", "a", json!({"path": "d/a.md"}), Some(file("secret/a.md")), false),
        ("allow='w'\npath='d/*.md'", "w", "a", json!({"path": "x"}), Some(file("d/e/a.md")), false),
        ("allow='w'\npath='d/**'", "w", "a", json!({"path": "x"}), Some(file("d/e/a.md")), true),
        ("allow='w'\npath={under='d'}", "w", "a", json!({"path": "x"}), Some(file("d/e/a.md")), true),
        ("allow='w'\npath={under='d'}", "w", "a", json!({"path": "x"}), Some(file("dd/a.md")), false),
        ("allow='w'\npath={equals='a[1].md'}", "w", "a", json!({"path": "x"}), Some(file("a[1].md")), true),
        ("allow='w'\npath={equals='a[1].md'}", "w", "a", json!({"path": "x"}), Some(file("a1.md")), false),
        ("allow='w'\npath='/home/ann/release/a'", "w", "a", json!({"path": "x"}), Some(file("a")), true),
        ("allow='w'\npath='/home/ann/release/b'", "w", "a", json!({"path": "x"}), Some(file("a")), false),
        // A command is its words.
        ("allow='sh'\nwords=['ls']", "sh", "a", json!({"command": "ls"}), Some(words("ls")), true),
        ("allow='sh'\nwords=['ls']", "sh", "a", json!({"command": "ls"}), Some(words("ls -l")), false),
        ("allow='sh'\nwords=['ls','...']", "sh", "a", json!({"command": "ls"}), Some(words("ls -l")), true),
        ("allow='sh'\nwords=['ls','*']", "sh", "a", json!({"command": "ls"}), Some(words("ls -l")), false),
        ("allow='sh'\nwords=['ls',{glob='*.rs'}]", "sh", "a", json!({}), Some(words("ls a.rs")), true),
        ("allow='sh'\ncommand='ls *'", "sh", "a", json!({"command": "ls x"}), Some(words("ls x")), false),
        ("block='sh'\ncommand='rm *'", "sh", "a", json!({"command": "ls x"}), Some(words("ls x")), true),
        ("allow='f'\nwords=['ls']", "f", "a", json!({"words": "ls"}), None, false),
        // Other arguments are looked at as they are.
        ("allow='f'\nto='*@example.com'", "f", "a", json!({"to": "ann@example.com"}), None, true),
        ("allow='f'\nto='*@example.com'", "f", "a", json!({"to": 7}), None, false),
        ("allow='f'\nto='*@example.com'", "f", "a", json!({}), None, false),
        ("allow='f'\nn={max=100}", "f", "a", json!({"n": 100}), None, true),
        ("allow='f'\nn={max=100}", "f", "a", json!({"n": 100.5}), None, false),
        ("allow='f'\nn={max=100}", "f", "a", json!({"n": "7"}), None, false),
        ("allow='f'\nforce=true", "f", "a", json!({"force": true, "x": 1}), None, true),
        ("allow='f'\nforce=true", "f", "a", json!({"force": "true"}), None, false),
        ("allow='f'\ndir='d/**'", "f", "a", json!({"dir": "d/../etc"}), None, false),
        ("block='f'\ndir='d/**'", "f", "a", json!({"dir": "d/../d/x"}), None, true),
        ("allow='f'\ndir={under='d'}", "f", "a", json!({"dir": "d/../etc"}), None, false),
        ("allow='f'\ndir={under='d'}", "f", "a", json!({"dir": "./d//x"}), None, true),
        ("allow='f'\narguments='{\"a\": 1}'", "f", "a", json!({"a": 1}), None, true),
        ("allow='f'\narguments='{\"a\": 1}'", "f", "a", json!({"a": 1, "b": 2}), None, false),
        ("allow='f'\narguments={agent='x'}", "f", "a", json!({"agent": "x"}), None, true),
    ];
    for (rule, tool, caller, arguments, subject, expected) in cases {
        let rules = in_force(&format!("[[rule]]\n{rule}\n"));
        assert_eq!(
            speaks(&rules, tool, caller, arguments, subject.as_ref()),
            *expected,
            "{rule} / {tool} {caller} {arguments}"
        );
    }
}

#[test]
fn what_is_not_known_does_not_allow_and_tightens() {
    let (caller, call_of) = (path("a"), |tool| RuledCall { tool, path: &[], arguments: None, subject: None });
    let speaks = |text: &str| {
        let rules = in_force(text);
        rules.speaking_of(RuledCall { path: &caller, ..call_of("f") }).next().is_some()
    };
    assert!(!speaks("[[rule]]\nallow='f'\nx='y'"));
    assert!(speaks("[[rule]]\nblock='f'\nx='y'"));
    assert!(speaks("[[rule]]\nallow='f'"));
    let expiring = "[[rule]]\nallow='f'\nexpires='2099-01-01'\n[[rule]]\nask='f'\nexpires='2020-01-01'";
    let rules = LastingRules::in_force(read(expiring).unwrap(), Path::new("/"), None);
    assert_eq!(rules.rules.iter().map(|rule| rule.rule()).collect::<Vec<_>>(), [Rule::Ask]);
}

#[test]
fn a_wrong_rule_is_told_where_it_is_wrong() {
    let cases = [
        ("[[rule]]\nagent='a'", "the rule does not say what becomes of which tool"),
        ("[[rule]]\nallow='f'\nblock='f'", "a rule says one of `allow`, `ask` and `block`"),
        ("[[rule]]\nallow='f'\nagnet='a'", "`agnet` is no key of a rule; is `agent` meant?"),
        ("[[rule]]\nallow='f'\nproject='x'", "`project` is not an absolute path"),
        ("[[rule]]\nallow='f'\nexpires='2026-02-30'", "`2026-02-30` is no day"),
        ("[[rule]]\nallow='f'\nexpires='soon'", "`soon` is no day"),
        ("[[rule]]\nallow='f'\nwords=['a','...','b']", "`...` stands for the last words only"),
        ("[[rule]]\nallow='f'\nwords=['...']", "`words` names no word"),
        ("[[rule]]\nallow='f'\nx='[a'", "not a pattern: a `[` is not closed"),
        ("[[rule]]\nallow='f'\nx={below='a'}", "unknown key `below` of an argument"),
        ("[[rule]]\nallow='f'\nx={max='a'}", "expected a number, found the text `a`"),
        ("[[rule]]\nallow='f'\narguments='[]'", "`arguments` is not a JSON object"),
        ("[[rule]]\nallow='f'\npath='d/*'\nexample=['e/x']", "the rule is not about its own example"),
        ("[[rule]]\nallow='f'\npath='**'\nnever=['e/x']", "the rule is about this, which it must never be"),
        ("[[rule]]\nallow='f'\nwords=['ls']\nexample=['ls -l']", "the rule is not about its own example"),
        ("[[rules]]\nallow='f'", "unknown key `rules` in a file of rules"),
        ("[[rule]]\nallow=1", "expected a text"),
        ("[[rule]\nallow='f'", "not valid TOML"),
    ];
    for (text, expected) in cases {
        let told = read(text).unwrap_err();
        assert!(told.contains(expected) && told.contains("rules.toml:"), "{text}\n{told}");
    }
    // All of them are told at once.
    let told = read("[[rule]]\nallow='f'\nexpires='x'\n[[rule]]\nask='g'\nagent='>'\n").unwrap_err();
    assert!(told.contains("rules.toml:3") && told.contains("rules.toml:6"), "{told}");
}

#[test]
fn the_rule_of_a_call_is_about_that_call_and_can_be_widened() {
    let project = Path::new("/home/ann/release");
    let cases = [
        (
            "write_file",
            Some(file("drafts/harbour.md")),
            r#"path = "drafts/harbour.md""#,
            vec![r#"path = "drafts/*.md""#, r#"path = "drafts/**""#],
        ),
        (
            "write_file",
            Some(file("a[1].md")),
            r#"path = { equals = "a[1].md" }"#,
            vec![r#"path = "*.md""#, r#"path = "**""#],
        ),
        (
            "shell",
            Some(words("cargo test --all")),
            r#"words = ["cargo", "test", "--all"]"#,
            vec![r#"words = ["cargo", "test", "..."]"#, r#"words = ["cargo", "..."]"#],
        ),
        ("shell", Some(words("echo ...")), r#"words = ["echo", { glob = "..." }]"#, vec![r#"words = ["echo", "..."]"#]),
        ("send", None, r#"arguments = "{\"a\":null,\"b\":\"\\\"\"}""#, vec![""]),
    ];
    for (tool, subject, condition, wider) in cases {
        let arguments = RawJson::of(&json!({"b": "\"", "a": null}));
        let caller = path("main editor");
        let call = RuledCall { tool, path: &caller, arguments: Some(&arguments), subject: subject.as_ref() };
        let draft = RuleDraft::exact(call, "editor", project).unwrap().until("2026-12-16");
        let of = |condition: &str| {
            let middle = if condition.is_empty() { String::new() } else { format!("  {condition}") };
            format!(
                "allow = \"{tool}\"  agent = \"editor\"  project = \"/home/ann/release\"{middle}  expires = 2026-12-16"
            )
        };
        assert_eq!(draft.shown(), of(condition));
        assert_eq!(
            draft.widened().iter().map(RuleDraft::shown).collect::<Vec<_>>(),
            wider.iter().map(|wider| of(wider)).collect::<Vec<_>>()
        );
        for draft in std::iter::once(draft.clone()).chain(draft.widened()) {
            assert!(in_force(&draft.toml()).speaking_of(call).next().is_some(), "{}", draft.toml());
        }
    }
}

/// What the words of a rule say, read again without the code that matches: only from the text that a person is shown.
fn described(rule: &GeneratedRule, call: &GeneratedCall) -> bool {
    let glob = |pattern: &str, text: &str| {
        globset::GlobBuilder::new(pattern)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .unwrap()
            .compile_matcher()
            .is_match(text)
    };
    let is_agent = match rule.agent {
        None => true,
        Some(agent) => {
            let parts: Vec<&str> = agent.split(" > ").collect();
            call.path.len() >= parts.len()
                && call.path[call.path.len() - parts.len()..].iter().zip(&parts).all(|(name, part)| glob(part, name))
        }
    };
    let fits = match (rule.condition, &call.about) {
        ("", _) => true,
        (condition, GeneratedAbout::File(name)) => {
            condition.strip_prefix("path=").is_some_and(|condition| match condition.strip_prefix("under ") {
                Some(directory) => name == directory || name.starts_with(&format!("{directory}/")),
                None => glob(condition, name),
            })
        }
        (condition, GeneratedAbout::Words(words)) => condition.strip_prefix("words=").is_some_and(|condition| {
            let expected: Vec<&str> = condition.split(' ').collect();
            match expected.split_last() {
                Some((&"...", expected)) => {
                    words.len() >= expected.len() && words.iter().zip(expected).all(|(a, b)| a == b)
                }
                _ => words.iter().map(String::as_str).eq(expected),
            }
        }),
        (condition, GeneratedAbout::Other(to)) => {
            condition.strip_prefix("to=").is_some_and(|condition| glob(condition, to))
        }
    };
    rule.tool == call.tool && is_agent && fits
}

struct GeneratedRule {
    tool: &'static str,
    agent: Option<&'static str>,
    condition: &'static str,
}

impl GeneratedRule {
    fn toml(&self) -> String {
        let agent = self.agent.map(|agent| format!("agent = \"{agent}\"\n")).unwrap_or_default();
        let condition = match self.condition.split_once('=') {
            None => String::new(),
            Some(("words", words)) => format!("words = {:?}", words.split(' ').collect::<Vec<_>>()),
            Some((name, value)) => match value.strip_prefix("under ") {
                Some(directory) => format!("{name} = {{ under = {directory:?} }}"),
                None => format!("{name} = {value:?}"),
            },
        };
        format!("[[rule]]\nallow = \"{}\"\n{agent}{condition}\n", self.tool)
    }
}

enum GeneratedAbout {
    File(String),
    Words(Vec<String>),
    Other(String),
}

struct GeneratedCall {
    tool: &'static str,
    path: Vec<String>,
    about: GeneratedAbout,
}

/// 300 rules and 1 000 calls: a call passes only if the words of the rule as shown describe it, and then it does.
#[test]
fn a_rule_lets_pass_what_its_text_says_and_nothing_else() {
    let mut random = fastrand::Rng::with_seed(7);
    let one = |random: &mut fastrand::Rng, of: &[&'static str]| of[random.usize(..of.len())];
    let tools = ["write_file", "shell", "send", "read_file"];
    let agents = ["main", "editor", "support", "cashier"];
    let patterns = ["main", "editor", "support > cashier", "*", "ed*", "main > *"];
    let conditions = [
        "",
        "path=drafts/*.md",
        "path=drafts/**",
        "path=**/a.md",
        "path=a.md",
        "path=under drafts",
        "path={a,b}.md",
        "path=[ab].md",
        "words=cargo test ...",
        "words=cargo test",
        "words=ls ...",
        "words=git * ...",
        "to=*@example.com",
        "to=ann*",
        "to=?nn",
    ];
    let names = [
        "a.md",
        "b.md",
        "drafts/a.md",
        "drafts/b.txt",
        "drafts/x/a.md",
        "draftsx/a.md",
        "drafts",
        "*.md",
        "[ab].md",
        "notes/a.md",
    ];
    let commands = ["cargo test", "cargo test --all", "cargo", "ls", "ls -l", "git * push", "git status x", "git * x"];
    let people = ["ann@example.com", "ann", "bob@example.com/x", "anna/x", "*@example.com", "../ann"];
    let rules: Vec<GeneratedRule> = (0..300)
        .map(|_| GeneratedRule {
            tool: one(&mut random, &tools),
            agent: random.bool().then(|| one(&mut random, &patterns)),
            condition: one(&mut random, &conditions),
        })
        .collect();
    let calls: Vec<GeneratedCall> = (0..1000)
        .map(|_| GeneratedCall {
            tool: one(&mut random, &tools),
            path: (0..random.usize(1..4)).map(|_| one(&mut random, &agents).to_owned()).collect(),
            about: match random.u8(..3) {
                0 => GeneratedAbout::File(one(&mut random, &names).to_owned()),
                1 => GeneratedAbout::Words(path(one(&mut random, &commands))),
                _ => GeneratedAbout::Other(one(&mut random, &people).to_owned()),
            },
        })
        .collect();
    let (mut pairs, mut passed) = (0, 0);
    for rule in &rules {
        let in_force = in_force(&rule.toml());
        for call in &calls {
            let (subject, arguments) = match &call.about {
                GeneratedAbout::File(name) => (Some(file(name)), json!({"path": "drafts/a.md"})),
                GeneratedAbout::Words(words) => {
                    (Some(CallSubject::Words(words.clone())), json!({"command": "cargo test"}))
                }
                GeneratedAbout::Other(to) => (None, json!({"to": to})),
            };
            let arguments = RawJson::of(&arguments);
            let call_seen =
                RuledCall { tool: call.tool, path: &call.path, arguments: Some(&arguments), subject: subject.as_ref() };
            let voices = in_force.voices(call_seen, Voices::default());
            let is_described = described(rule, call);
            assert_eq!(
                voices.allowance.is_some(),
                is_described,
                "{}\n{:?} {}",
                rule.toml(),
                call.path,
                canonical(&arguments)
            );
            pairs += 1;
            passed += usize::from(is_described);
        }
    }
    assert!(pairs == 300_000 && passed > 5_000, "{passed} of {pairs}");
}

#[test]
fn the_organisation_only_tightens_and_the_strictest_of_a_source_counts() {
    let of = |text: &str, source| read_rules(&[rule_file("r", text, source)]).unwrap();
    let both = "[[rule]]\nallow='f'\n[[rule]]\nask='f'\n[[rule]]\nblock='f'\nx='y'\n";
    let caller = path("a");
    let voices = |source, arguments: Value| {
        let rules = LastingRules::in_force(of(both, source), &PathBuf::from("/p"), Some("2026-11-18"));
        let arguments = RawJson::of(&arguments);
        rules.voices(
            RuledCall { tool: "f", path: &caller, arguments: Some(&arguments), subject: None },
            Voices::default(),
        )
    };
    let said = |voice: Option<PlacedRule>| voice.map(|voice| (voice.rule, voice.place.to_string()));
    let organisation = voices(RuleSource::Organisation, json!({}));
    assert_eq!((organisation.allowance, said(organisation.organisation)), (None, Some((Rule::Ask, "r:3".to_owned()))));
    let yours = voices(RuleSource::Yours, json!({"x": "y"}));
    assert_eq!(yours.allowance.as_deref(), Some("r:1"));
    assert_eq!(said(yours.yours), Some((Rule::Block, "r:5".to_owned())));
    let manifest = voices(RuleSource::Manifest, json!({}));
    assert_eq!((manifest.allowance, said(manifest.manifest)), (None, Some((Rule::Ask, "r:3".to_owned()))));
}
