//! Shells of the manifest: their rules, and whether the rules do what their examples say.

use super::{ToolsetDefinition, WORDS};
use crate::escape::visible;
use crate::project::trust::claims;
use crate::syntax::claim::Bearing::{Covered, Item, Neutral};
use crate::syntax::diagnostic::{Diagnostic, Diagnostics, Located, Span};
use crate::syntax::table::Repeats::{Allowed, Refused};
use crate::syntax::table::Shape::{Bool, List, Object, OneOf, OneOfBut, Text};
use crate::syntax::table::{Fields, Table, optional, required, texts_of};
use crate::syntax::tree::NodeKind;
use crate::tools::approval::Rule;
use crate::tools::shell::{danger, rules};
use crate::tools::source::{Access, Grammar, ShellConfig, ShellRule};

pub(crate) const SHELL: Table = Table {
    what: "`shell`",
    keys: &[
        optional(
            "rules",
            List { of: &Object(&SHELL_RULE), least: 0, repeats: Allowed },
            Item(claims::rules),
            "the first that matches decides",
        ),
        optional(
            "default",
            OneOfBut { words: &["ask", "block"], refused: &["allow"] },
            Item(claims::default),
            "for commands that no rule matches",
        ),
        optional("directory", OneOf(&["rw", "ro"]), Covered, "whether commands may write the working directory"),
        optional(
            "write",
            List { of: &Text, least: 0, repeats: Refused },
            Item(claims::write),
            "directories that commands may write",
        ),
        optional("network", Bool, Item(claims::network), "whether commands may open sockets"),
    ],
};

const SHELL_RULE: Table = Table {
    what: "a shell rule",
    keys: &[
        required("pattern", WORDS, Covered, "the leading words of the command"),
        required("approval", OneOf(Rule::WORDS), Covered, "what becomes of a command that matches"),
        optional(
            "approval_required_if_args",
            List { of: &Text, least: 1, repeats: Refused },
            Covered,
            "words that turn `allow` into `ask`",
        ),
        optional(
            "allowed_args",
            List { of: &Text, least: 0, repeats: Refused },
            Covered,
            "options that `allow` covers: any other asks",
        ),
        optional("match", WORDS, Neutral, "examples that the pattern must match"),
        optional("not_match", WORDS, Neutral, "examples that the pattern must not match"),
        optional("i_understand", Bool, Covered, "allow a program that can run any other"),
    ],
};

/// Each example is held against each rule.
const MOST_RULES: usize = 500;

/// A rule, and where its parts stand.
struct LocatedRule {
    rule: ShellRule,
    pattern: Span,
    matches: Vec<Located<String>>,
    not_matches: Vec<Located<String>>,
}

pub(crate) fn read(fields: &Fields<'_>, problems: &mut Diagnostics) -> ToolsetDefinition {
    let written: Vec<LocatedRule> = match fields.get("rules").map(|node| &node.kind) {
        Some(NodeKind::List(items)) => items.iter().filter_map(|node| rule(&SHELL_RULE.fields(node))).collect(),
        _ => Vec::new(),
    };
    if written.len() > MOST_RULES {
        let fact = format!("a shell with more than {MOST_RULES} rules");
        problems.push(Diagnostic::error(fields.key_span("rules").unwrap_or(fields.span), fact));
        return ToolsetDefinition::Broken;
    }
    let rules: Vec<ShellRule> = written.iter().map(|written| written.rule.clone()).collect();
    for (at, written) in written.iter().enumerate() {
        check_pattern(written, problems);
        check_examples(&rules, at, written, problems);
    }
    let default = default(fields, problems);
    let config = ShellConfig {
        grammar: Grammar::Rules { rules, default },
        directory: match fields.text("directory") {
            Some(word) if word.value == "ro" => Access::ReadOnly,
            Some(_) | None => Access::ReadWrite,
        },
        write: fields.texts("write").into_iter().map(|path| path.value).collect(),
        network: fields.bool("network").unwrap_or(false),
    };
    ToolsetDefinition::Shell(config, written.iter().map(|written| written.pattern).collect())
}

fn default(fields: &Fields<'_>, problems: &mut Diagnostics) -> Option<Rule> {
    let word = fields.text("default")?;
    match Rule::parse(&word.value) {
        Some(Rule::Allow) => {
            let hint = "write a rule for each program that may run unasked; `\"default\": \"ask\"` asks for the others";
            problems.push(Diagnostic::error(word.span, "`default: allow` would allow every program").hint(hint));
            None
        }
        rule => rule,
    }
}

fn rule(fields: &Fields<'_>) -> Option<LocatedRule> {
    let located = |key| fields.get(key).map(texts_of).unwrap_or_default();
    let texts = |located: &[Located<String>]| located.iter().map(|text| text.value.clone()).collect();
    let pattern = fields.get("pattern")?;
    let (matches, not_matches) = (located("match"), located("not_match"));
    let rule = ShellRule {
        pattern: match &pattern.kind {
            NodeKind::Text(words) => words.split_whitespace().map(str::to_owned).collect(),
            _ => texts(&texts_of(pattern)),
        },
        approval: fields.text("approval").and_then(|word| Rule::parse(&word.value))?,
        approval_required_if_args: texts(&located("approval_required_if_args")),
        allowed_args: fields.get("allowed_args").map(|node| texts(&texts_of(node))),
        matches: texts(&matches),
        not_matches: texts(&not_matches),
        i_understand: fields.bool("i_understand").unwrap_or(false),
    };
    Some(LocatedRule { rule, pattern: pattern.span, matches, not_matches })
}

fn check_pattern(written: &LocatedRule, problems: &mut Diagnostics) {
    let LocatedRule { rule, pattern, .. } = written;
    let program = rule.pattern.first().map_or("", String::as_str);
    if program.contains('/') && !program.starts_with('/') {
        let fact = format!("`{}` is not the name of a program", visible(program));
        let hint = "programs are found by name in the directories of the system; any other by its absolute path";
        problems.push(Diagnostic::error(*pattern, fact).hint(hint));
    }
    if let (Rule::Allow, false, Some(danger)) = (rule.approval, rule.i_understand, danger::by_name(&rule.pattern)) {
        problems.push(too_much(*pattern, &danger));
    }
}

/// A rule that would allow any program.
pub(crate) fn too_much(pattern: Span, danger: &str) -> Diagnostic {
    let fact = format!("the rule allows too much: {danger}");
    let hint = "let it `ask`, name a narrower command, or mark the rule with `\"i_understand\": true`";
    Diagnostic::error(pattern, fact).hint(hint)
}

fn check_examples(rules: &[ShellRule], at: usize, written: &LocatedRule, problems: &mut Diagnostics) {
    let matching = written.matches.iter().map(|example| (example, true));
    let others = written.not_matches.iter().map(|example| (example, false));
    // Empty ones were reported with the shape of the file.
    for (example, should_match) in matching.chain(others).filter(|(example, _)| !example.value.trim().is_empty()) {
        if let Err(fact) = rules::check_example(rules, at, &example.value, should_match) {
            problems.push(Diagnostic::error(example.span, fact));
        }
    }
}
