//! The rules of a configured shell: which commands they match, and what they say of them.

use super::options;
use super::words::{self, Word};
use crate::escape::visible;
use crate::tools::approval::Rule;
use crate::tools::source::ShellRule;

/// Whether a rule is about a command: the command begins with its words.
pub(crate) fn matches(rule: &ShellRule, words: &[Word]) -> bool {
    rule.pattern.len() <= words.len() && rule.pattern.iter().zip(words).all(|(expected, word)| *expected == word.text)
}

/// The first rule that matches decides.
pub(crate) fn first_match<'r>(rules: &'r [ShellRule], words: &[Word]) -> Option<&'r ShellRule> {
    rules.iter().find(|rule| matches(rule, words))
}

/// What the rule says of a command that it matches: some words turn `allow` into `ask`, and so does whatever is not
/// among those that it knows.
pub(crate) fn verdict(rule: &ShellRule, words: &[Word]) -> Rule {
    let behind: Vec<&str> = words.iter().skip(rule.pattern.len()).map(|word| word.text.as_str()).collect();
    let is_required = rule.approval_required_if_args.iter().any(|argument| options::is_given(argument, &behind));
    let is_unknown = rule.allowed_args.as_ref().is_some_and(|allowed| options::has_other(allowed, &behind));
    match rule.approval {
        Rule::Allow if is_required || is_unknown => Rule::Ask,
        rule => rule,
    }
}

/// Whether an example is decided as it says: by this rule (of a list of them), or not by this rule.
pub(crate) fn check_example(rules: &[ShellRule], at: usize, example: &str, should_match: bool) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pattern: &str) -> ShellRule {
        ShellRule {
            pattern: pattern.split(' ').map(str::to_owned).collect(),
            approval: Rule::Allow,
            approval_required_if_args: vec!["--force".to_owned(), "-D".to_owned()],
            allowed_args: None,
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
            ("git push --forc", Rule::Ask),
            ("git push -vD", Rule::Ask),
        ] {
            assert_eq!(verdict(&rule("git push"), &words::split(command).unwrap()), expected, "{command}");
        }
        let knows = ShellRule { allowed_args: Some(vec!["-v".to_owned()]), ..rule("mkdir") };
        for (command, expected) in [
            ("mkdir a", Rule::Allow),
            ("mkdir -v a", Rule::Allow),
            ("mkdir --parents a", Rule::Ask),
            ("mkdir -f a", Rule::Ask),
            ("mkdir -vp a", Rule::Ask),
        ] {
            assert_eq!(verdict(&knows, &words::split(command).unwrap()), expected, "{command}");
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
}
