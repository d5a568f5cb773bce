//! The arguments of a call in the person's editor: a text itself, or all of them as YAML.

use llm_do::RawJson;
use llm_do::approval::{CallSubject, canonical};
use llm_do::escape::is_deceptive;
use llm_do::schema::json_of_yaml;
use serde_json::{Map, Value};

use crate::terminal::Terminal;
use crate::terminal::editor::{Editor, edit_until_right};

/// Arguments, and what of them is edited.
#[derive(Clone, Copy)]
pub struct EditableArguments<'a> {
    pub arguments: &'a RawJson,
    /// The argument whose text is edited; without it, all of them.
    pub edits: Option<&'a str>,
    pub about: Option<&'a CallSubject>,
}

/// What a person makes of the arguments: judged, or nothing if they changed nothing.
pub async fn edit<T>(
    editor: &Editor,
    terminal: &Terminal,
    editable: EditableArguments<'_>,
    judged: impl AsyncFn(RawJson) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let values: Map<String, Value> = editable.arguments.to().map_err(|error| error.to_string())?;
    let text = editable.edits.and_then(|name| Some((name, values.get(name)?.as_str()?)));
    match text {
        Some((name, text)) => {
            let read = async |edited: &str| {
                let mut values = values.clone();
                values.insert(name.to_owned(), edited.into());
                judged(RawJson::of(&values)).await
            };
            edit_until_right(editor, terminal, &file_name(name, editable.about), text, read).await
        }
        None => {
            let read = async |edited: &str| {
                let read = json_of_yaml(edited)?;
                if !read.get().starts_with('{') {
                    return Err("arguments are a mapping: `name: value`".to_owned());
                }
                judged(read).await.map(Some)
            };
            let yaml = yaml(&values);
            let edited = edit_until_right(editor, terminal, "arguments.yaml", &yaml, async |edited| {
                let is_same = json_of_yaml(edited).is_ok_and(|json| canonical(&json) == canonical(editable.arguments));
                if is_same { Ok(None) } else { read(edited).await }
            });
            Ok(edited.await?.flatten())
        }
    }
}

/// The name that the file would have where the text goes, so that the editor knows what it is.
fn file_name(argument: &str, about: Option<&CallSubject>) -> String {
    let target = match about {
        Some(CallSubject::File { name, .. }) => name.rsplit('/').next(),
        Some(CallSubject::Words(_)) | None => None,
    };
    let is_name = |name: &&str| !name.is_empty() && !matches!(*name, "." | "..") && name.len() < 200;
    target.filter(is_name).map_or_else(|| format!("{argument}.txt"), str::to_owned)
}

/// Arguments as a person reads and changes them: texts of several lines as blocks.
fn yaml(values: &Map<String, Value>) -> String {
    let line = |(name, value): (&String, &Value)| {
        let name = if is_plain(name) { name.clone() } else { Value::from(name.as_str()).to_string() };
        match value {
            Value::String(text) if is_block(text) => {
                let kept = if text.ends_with("\n\n") || text == "\n" { "|+" } else { "|" };
                let kept = if text.ends_with('\n') { kept } else { "|-" };
                let indented =
                    |line: &str| if line.trim().is_empty() { "\n".to_owned() } else { format!("  {line}\n") };
                let lines = text.strip_suffix('\n').unwrap_or(text).split('\n').map(indented);
                format!("{name}: {kept}\n{}", lines.collect::<String>())
            }
            value => format!("{name}: {}\n", llm_do::escape::visible_json(&value.to_string())),
        }
    };
    values.iter().map(line).collect()
}

fn is_plain(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_word) && !is_constant(name)
}

fn is_constant(name: &str) -> bool {
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&name.to_ascii_lowercase().as_str())
}

/// Whether a text of several lines comes back from a block as it was.
fn is_block(text: &str) -> bool {
    let is_safe = |line: &str| !line.chars().any(is_deceptive) && (!line.trim().is_empty() || line.is_empty());
    text.trim_end_matches('\n').contains('\n') && !text.starts_with([' ', '\n']) && text.split('\n').all(is_safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_several_lines_is_a_block() {
        let values: Map<String, Value> =
            serde_json::from_str(r#"{"path":"a: b","body":"one\n  two\n\nthree\n","n":[1,{"x":"y"}],"no":"日本"}"#)
                .unwrap();
        let expected =
            "body: |\n  one\n    two\n\n  three\n\"n\": [1,{\"x\":\"y\"}]\n\"no\": \"日本\"\npath: \"a: b\"\n";
        assert_eq!(yaml(&values), expected);
    }

    #[test]
    fn a_file_has_the_name_of_its_target() {
        let file = |name: &str| CallSubject::File { name: name.into(), root: "/p".into() };
        assert_eq!(file_name("content", Some(&file("notes/a.md"))), "a.md");
        assert_eq!(file_name("content", Some(&file("notes/.."))), "content.txt");
        assert_eq!(file_name("command", Some(&CallSubject::Words(vec!["ls".into()]))), "command.txt");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(512))]
        #[test]
        fn what_is_not_changed_comes_back(name in "[a-z\\-]{1,4}|null|y", text in "([ab: #|>'\"\\-]|\n|日|\t){0,24}") {
            let values: Map<String, Value> = [(name, Value::from(text))].into_iter().collect();
            let read = json_of_yaml(&yaml(&values));
            let read = read.map(|json| json.to::<Map<String, Value>>().unwrap());
            proptest::prop_assert_eq!(read, Ok(values));
        }
    }
}
