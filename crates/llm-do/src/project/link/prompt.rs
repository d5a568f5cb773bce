//! The template of an agent's `prompt`, against the fields of its input.

use std::collections::BTreeSet;

use super::Linker;
use crate::escape::visible;
use crate::project::Typing;
use crate::project::worker::WorkerFile;
use crate::syntax::diagnostic::Diagnostic;

impl Linker<'_> {
    pub(super) fn check_prompt(&mut self, worker: &WorkerFile, input: &Typing) {
        let Some(prompt) = &worker.prompt else { return };
        if matches!(input, Typing::Python(_)) {
            self.problems.push(
                Diagnostic::error(prompt.span, "`prompt` and an input class in Python exclude each other")
                    .hint("the class renders itself in `prompt_messages()`"),
            );
            return;
        }
        if let Err(reason) = check_bounds(&prompt.value) {
            self.problems.push(Diagnostic::error(prompt.span, format!("the template does not parse: {reason}")));
            return;
        }
        let environment = minijinja::Environment::new();
        let template = match environment.template_from_str(&prompt.value) {
            Ok(template) => template,
            Err(error) => {
                let line = error.line().map(|line| format!(" (line {line} of the template)")).unwrap_or_default();
                let reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
                self.problems
                    .push(Diagnostic::error(prompt.span, format!("the template does not parse: {reason}{line}")));
                return;
            }
        };
        if worker.is_mistaken(&["schema_in", "schema_in_ref"]) {
            return;
        }
        let Some(fields) = declared_fields(input) else { return };
        let globals: Vec<&str> = environment.globals().map(|(name, _)| name).collect();
        let mut unknown: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        unknown.retain(|name| !fields.contains(name) && !globals.contains(&name.as_str()));
        unknown.sort();
        for name in unknown {
            let hint = self.problems.suggest(&name, "fields", fields.iter().map(String::as_str));
            let fact = format!("the template uses an unknown field `{}`", visible(&name));
            self.problems.push(Diagnostic::error(prompt.span, fact).maybe_hint(hint));
        }
    }
}

/// The top-level fields of an input, if its schema names them all.
fn declared_fields(input: &Typing) -> Option<BTreeSet<String>> {
    match input {
        Typing::Untyped => Some(BTreeSet::from(["input".to_owned(), "attachments".to_owned()])),
        Typing::Python(_) => None,
        Typing::Schema(schema) => {
            let schema: serde_json::Value = schema.to().ok()?;
            let closed = ["additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"]
                .iter()
                .all(|key| matches!(schema.get(key), None | Some(serde_json::Value::Bool(false))));
            let properties = schema.get("properties")?.as_object()?;
            closed.then(|| properties.keys().cloned().collect())
        }
    }
}

/// The template engine bounds how deep brackets and blocks nest, but its parser and compiler also recurse along chains
/// (`a.b.b.b`, `a + a + a`, `not not a`, `elif`), which must not overflow the stack. A chain ends with its tag.
const LONGEST_TAG: usize = 1_000;
const MOST_ALTERNATIVES: usize = 100;

fn check_bounds(template: &str) -> Result<(), String> {
    if longest_tag(template) > LONGEST_TAG {
        return Err(format!("a tag is longer than {LONGEST_TAG} bytes"));
    }
    if template.matches("elif").count() > MOST_ALTERNATIVES {
        return Err(format!("more than {MOST_ALTERNATIVES} times `elif`"));
    }
    Ok(())
}

/// The bytes in the longest `{{ … }}` or `{% … %}`, found as the engine finds them.
fn longest_tag(template: &str) -> usize {
    let mut longest = 0;
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        rest = &rest[start + 1..];
        let (inside, end) = match rest.as_bytes().first() {
            Some(b'#') => {
                rest = rest[1..].split_once("#}").map_or("", |(_, after)| after);
                continue;
            }
            Some(b'{') => (&rest[1..], "}}"),
            Some(b'%') => (&rest[1..], "%}"),
            _ => continue,
        };
        let length = tag_length(inside, end);
        longest = longest.max(length);
        let is_raw = end == "%}" && is_word(&inside[..length], "raw");
        rest = inside.get(length + end.len()..).unwrap_or("");
        if is_raw {
            rest = behind_raw(rest);
        }
    }
    longest
}

/// Up to the end mark outside texts and brackets, or to the end of the template.
fn tag_length(inside: &str, end: &str) -> usize {
    let bytes = inside.as_bytes();
    let (mut at, mut open) = (0, 0_isize);
    while at < bytes.len() && !(open == 0 && bytes[at..].starts_with(end.as_bytes())) {
        match bytes[at] {
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open -= 1,
            _ => {}
        }
        at += 1;
    }
    at.min(bytes.len())
}

/// Whether a tag holds this one word, signs for white space aside.
fn is_word(inside: &str, word: &str) -> bool {
    inside.trim_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '-' | '+')) == word
}

fn behind_raw(mut rest: &str) -> &str {
    while let Some((_, tag)) = rest.split_once("{%") {
        match tag.split_once("%}") {
            Some((inside, after)) if is_word(inside, "endraw") => return after,
            Some(_) => rest = tag,
            None => return "",
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_tag_is_found_as_the_engine_finds_it() {
        let cases = [
            ("", 0),
            ("no tag { } %} }}", 0),
            ("{{ab}} {{abc}} {{a}}", 3),
            ("{%abcd%}", 4),
            ("{{ '}}' }}", 6),
            ("{{ \"\\\"}}\" }}", 8),
            ("{{ {'a': {}} }}", 11),
            ("{{ (}} }}", 7),
            ("{# {{ aaaaaaaaa #}{{a}}", 1),
            ("{% raw %}{{ aaaaaaaaaaa }}{%- endraw -%}{{a}}", 5),
            ("{%- raw -%} {% endraw {{ ' {%endraw%} {{ aaaaaaaaa }}", 11),
            ("{{ never", 6),
            ("{{ 'never", 7),
            ("{{ 'never\\", 8),
        ];
        for (template, expected) in cases {
            assert_eq!(longest_tag(template), expected, "{template}");
        }
    }
}
