//! The words of a question, so that every front end says the same before a tool runs. Pure: a request in, lines out. All of the arguments are shown, nothing of
//! them is cut; what comes from elsewhere is marked line by line and never stands in a heading.

use llm_do::approval::{Memory, PendingQuestion, Question, short_id};
use llm_do::escape::{visible, visible_lines, visible_name};
use llm_do::{ApprovalRequest, RawJson};

/// Longer words of others are cut.
const LONGEST_FOREIGN: usize = 2000;

/// A line of a question, and what it is. How that looks is the front end's decision.
#[derive(Debug, PartialEq, Eq)]
pub struct QuestionLine {
    pub role: LineRole,
    pub text: String,
}

/// What a line of a question is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineRole {
    /// Which call it is about.
    Heading,
    /// Our own words, and the arguments.
    Plain,
    /// What the call would add to a file, or take away from it.
    Added,
    Removed,
    /// Words of the author of the tool.
    Quoted,
}

/// An answer that the person may give: the key for it, and all that it allows.
#[derive(Debug, PartialEq, Eq)]
pub struct AnswerChoice {
    pub key: char,
    pub words: String,
}

/// The question without its keys.
pub fn lines(request: &ApprovalRequest, number: QuestionNumber) -> Vec<QuestionLine> {
    let Question { reason, preview, foreign, .. } = &request.question;
    let words = QuestionWords {
        reason,
        arguments: &request.arguments,
        preview: preview.as_deref(),
        foreign: foreign.as_deref(),
    };
    words.lines(heading(request, number))
}

/// The same of a question that another process asks, under a name by which it can be answered.
pub fn waiting_lines(pending: &PendingQuestion, name: &str) -> Vec<QuestionLine> {
    let PendingQuestion { path, tool, arguments, reason, preview, foreign, .. } = pending;
    let words = QuestionWords { reason, arguments, preview: preview.as_deref(), foreign: foreign.as_deref() };
    let path: Vec<&str> = path.iter().map(String::as_str).chain([tool.as_str()]).collect();
    words.lines(format!("approval: {} ({name})", visible_name(&path.join(" › "))))
}

/// What a person reads of a question, whoever asks it.
struct QuestionWords<'a> {
    reason: &'a str,
    arguments: &'a RawJson,
    preview: Option<&'a str>,
    foreign: Option<&'a str>,
}

impl QuestionWords<'_> {
    fn lines(&self, heading: String) -> Vec<QuestionLine> {
        let plain = |text: &str| QuestionLine { role: LineRole::Plain, text: format!("  {text}") };
        let mut lines = vec![QuestionLine { role: LineRole::Heading, text: heading }];
        lines.push(plain(&visible_name(self.reason)));
        lines.extend(visible_lines(&self.arguments.indented()).lines().map(plain));
        if let Some(preview) = self.preview {
            lines.push(plain("in detail:"));
            let shown = visible_lines(preview);
            lines.extend(shown.lines().map(|line| QuestionLine { role: role_in_difference(line), ..plain(line) }));
        }
        if let Some(foreign) = self.foreign {
            let quoted = |line: &str| QuestionLine { role: LineRole::Quoted, text: format!("  │ {}", visible(line)) };
            lines.push(plain("in the words of its author:"));
            lines.extend(bounded(foreign).lines().map(quoted));
        }
        lines
    }
}

/// A question that waits to be answered elsewhere or later: the call, why it is asked, and what it would change.
pub fn pending(pending: &PendingQuestion) -> String {
    let PendingQuestion { id, path, tool, arguments, reason, preview, foreign } = pending;
    let asked = call(&format!("waiting for approval ({})", short_id(id)), path, tool, arguments);
    let preview = preview.as_ref().map(|preview| format!("{}\n", visible_lines(preview.trim_end())));
    let quoted = |foreign: &String| {
        let lines: Vec<String> = bounded(foreign).lines().map(|line| format!("│ {}\n", visible(line))).collect();
        format!("in the words of its author:\n{}", lines.concat())
    };
    let (preview, foreign) = (preview.unwrap_or_default(), foreign.as_ref().map(quoted).unwrap_or_default());
    format!("{asked}reason: {}\n{preview}{foreign}", visible_name(reason))
}

/// A call, all of it.
pub fn call(heading: &str, path: &[String], tool: &str, arguments: &RawJson) -> String {
    let arguments = visible_lines(&arguments.indented());
    format!("{heading}: {} › {}\n{arguments}\n", visible_name(&path.join(" › ")), visible_name(tool))
}

/// Which question of a run it is, of those that are known so far.
#[derive(Clone, Copy, Debug)]
pub struct QuestionNumber {
    pub number: usize,
    /// The number of the last one, if several stand open together.
    pub of: Option<usize>,
}

fn heading(request: &ApprovalRequest, QuestionNumber { number, of }: QuestionNumber) -> String {
    let path: Vec<&str> = request.path.iter().map(String::as_str).chain([request.tool.as_str()]).collect();
    let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
    format!("approval {number}{of}: {} ({})", visible_name(&path.join(" › ")), short_id(&request.id))
}

/// A line of a difference.
fn role_in_difference(line: &str) -> LineRole {
    match line.as_bytes() {
        [b'+', b' ', ..] => LineRole::Added,
        [b'-', b' ', ..] => LineRole::Removed,
        _ => LineRole::Plain,
    }
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(LONGEST_FOREIGN) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}…", &text[..cut]),
    }
}

/// The answers that count for a question; what one allows is said in full.
pub fn choices(request: &ApprovalRequest) -> Vec<AnswerChoice> {
    let covers = request.question.covers.as_ref();
    let call = covers.map_or_else(|| "this exact call".into(), |covers| visible_name(&covers.call));
    let tool = covers.map_or_else(
        || format!("`{}` with any arguments", visible(&request.tool)),
        |covers| visible_name(&covers.tool).into_owned(),
    );
    let agent = visible(&request.caller);
    let for_session = |what: &str| format!("yes, and {what} for the agent {agent} for the rest of the session");
    let mut keys = vec![('y', "yes, once".to_owned())];
    if request.memory != Memory::Nothing {
        keys.push(('s', for_session(&call)));
    }
    if request.memory == Memory::CallOrTool {
        keys.push(('t', for_session(&tool)));
    }
    keys.extend([
        ('e', "edit the arguments first".to_owned()),
        ('n', "no".to_owned()),
        ('q', "no, and end the run".to_owned()),
    ]);
    keys.into_iter().map(|(key, words)| AnswerChoice { key, words }).collect()
}

#[cfg(test)]
mod tests {
    use llm_do::approval::Coverage;

    use super::*;

    fn request() -> ApprovalRequest {
        ApprovalRequest {
            id: "0123456789ab".into(),
            path: vec!["main".into(), "editor".into()],
            caller: "editor".into(),
            tool: "write_file".into(),
            arguments: RawJson::parse("{\"path\":\"a.md\",\"content\":\"x\\u001b[2J\u{202e}\"}").unwrap(),
            question: Question {
                reason: "changes the file `a.md`".into(),
                preview: Some(" same\n- old\n+ new\u{1b}".into()),
                bound_to: None,
                covers: None,
                foreign: Some("harmless\napproval 2: press y\u{202e}".into()),
            },
            coverage: llm_do::approval::SessionCoverage::default(),
            memory: Memory::CallOrTool,
        }
    }

    #[test]
    fn everything_is_shown_and_nothing_deceives() {
        let expected = r#"approval 3: main › editor › write_file (0123456789ab)
  changes the file `a.md`
  {
    "path": "a.md",
    "content": "x\u001b[2J\u{202e}"
  }
  in detail:
   same
  - old
  + new\u{1b}
  in the words of its author:
  │ harmless
  │ approval 2: press y\u{202e}"#;
        let shown: Vec<String> =
            lines(&request(), QuestionNumber { number: 3, of: None }).into_iter().map(|line| line.text).collect();
        assert_eq!(shown.join("\n"), expected);
    }

    #[test]
    fn a_question_of_another_process_has_the_same_words() {
        let ApprovalRequest { id, path, tool, arguments, question, .. } = request();
        let Question { reason, preview, foreign, .. } = question;
        let pending = PendingQuestion { id, path, tool, arguments, reason, preview, foreign };
        let (here, elsewhere) =
            (lines(&request(), QuestionNumber { number: 1, of: None }), waiting_lines(&pending, "r/q"));
        assert_eq!(here[1..], elsewhere[1..]);
        assert_eq!(elsewhere[0].text, "approval: main › editor › write_file (r/q)");
    }

    #[test]
    fn whoever_decides_later_reads_why_it_is_asked() {
        let ApprovalRequest { id, path, tool, arguments, question, .. } = request();
        let Question { reason, preview, .. } = question;
        let expected = r#"waiting for approval (0123456789ab): main › editor › write_file
{
  "path": "a.md",
  "content": "x\u001b[2J\u{202e}"
}
reason: changes the file `a.md`
 same
- old
+ new\u{1b}
"#;
        assert_eq!(pending(&PendingQuestion { id, path, tool, arguments, reason, preview, foreign: None }), expected);
    }

    #[test]
    fn what_always_asks_is_never_remembered() {
        let keys_of = |memory| {
            let request = ApprovalRequest { memory, ..request() };
            choices(&request).iter().map(|choice| choice.key).collect::<String>()
        };
        assert_eq!(keys_of(Memory::CallOrTool), "ystenq");
        assert_eq!(keys_of(Memory::CallOnly), "ysenq");
        assert_eq!(keys_of(Memory::Nothing), "yenq");
        assert!(choices(&request())[2].words.contains("`write_file` with any arguments"));
        let mut narrow = request();
        let (call, tool) =
            ("`touch x\u{202e}` in /home".into(), "any command that begins with `touch`, in /home".into());
        narrow.question.covers = Some(Coverage { call, tool });
        let shown = choices(&narrow);
        let expected = "yes, and `touch x\\u{202e}` in /home for the agent editor for the rest of the session";
        assert!(shown[1].words.ends_with(expected), "{}", shown[1].words);
        assert!(shown[2].words.contains("any command that begins with `touch`, in /home"), "{}", shown[2].words);
    }
}
