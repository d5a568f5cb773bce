use llm_do::approval::Coverage;

use super::*;

fn request() -> ApprovalRequest {
    ApprovalRequest {
        id: "0123456789ab".into(),
        path: vec!["main".into(), "editor".into()],
        caller: "editor".into(),
        tool: "write_file".into(),
        arguments: RawJson::parse("{\"path\":\"a.md\",\"content\":\"x\\u001b[2J\u{202e}\"}").unwrap(),
        about: None,
        question: Question {
            reason: "changes a.md: 1 line added, 1 removed".into(),
            preview: Some("   1   same\n   2 - old\n   2\\+ new\\u{1b}".into()),
            shows: vec!["path".into(), "content".into()],
            rule: Some("editor.worker says `write_file: ask`".into()),
            foreign: Some("harmless\napproval 2: press y\u{202e}".into()),
            ..Question::default()
        },
        coverage: llm_do::approval::SessionCoverage::default(),
        memory: Memory::CallOrTool,
        trials: llm_do::approval::Trials::default(),
    }
}

fn texts(lines: Vec<QuestionLine>) -> String {
    lines.into_iter().map(|line| line.text).collect::<Vec<_>>().join("\n")
}

const ONLY: QuestionNumber = QuestionNumber { number: 3, of: None };

#[test]
fn everything_is_shown_once_and_nothing_deceives() {
    use LineRole::{Added, Heading, Plain, Quoted, Removed};
    let expected = r"approval 3 · main › editor › write_file · 0123456789ab
changes a.md: 1 line added, 1 removed
   1   same
   2 - old
   2\+ new\u{1b}
in the words of its author:
│ harmless
│ approval 2: press y\u{202e}
because editor.worker says `write_file: ask`";
    let lines = lines(&request(), ONLY);
    let roles: Vec<LineRole> = lines.iter().map(|line| line.role).collect();
    assert_eq!(texts(lines), expected);
    assert_eq!(roles, [Heading, Plain, Plain, Removed, Added, Plain, Quoted, Quoted, Plain]);
}

#[test]
fn arguments_that_no_preview_holds_are_lines() {
    let mut request = request();
    let json =
        "{ \"title\": \"\\u65e5\\u672c\", \"body\": \"one\\n\\ttwo\\\\n\\n\", \"amount\": 34.50, \"a\\u202eb\": null,\n
        \"to\": [ \"ann \\u00e9\\u202e\", {\"x\" : 12345678901234567890123} ], \"end\": \"x \" }";
    request.arguments = RawJson::parse(json).unwrap();
    let reason = "publish.worker says `publish: ask`";
    request.question = Question { rule: Some(reason.into()), ..Question::because(reason) };
    let expected = r#"approval 1 of 2 · main › editor › write_file · 0123456789ab
title   │ 日本
body    │ one
       \│ \ttwo\\n
        │
amount  34.50
a\u{202e}b  null
to      ["ann é\u202e",{"x":12345678901234567890123}]
end     │ x 
because publish.worker says `publish: ask`"#;
    assert_eq!(texts(lines(&request, QuestionNumber { number: 1, of: Some(2) })), expected);
}

#[test]
fn a_question_of_another_process_has_the_same_words() {
    let ApprovalRequest { id, path, tool, arguments, question, .. } = request();
    let Question { reason, preview, shows, edits, rule, foreign, form, .. } = question;
    let waiting = PendingQuestion { id, path, tool, arguments, reason, preview, shows, edits, rule, foreign, form };
    let (here, elsewhere) = (lines(&request(), ONLY), waiting_lines(&waiting, "r/q"));
    assert_eq!(here[1..], elsewhere[1..]);
    assert_eq!(elsewhere[0].text, "approval · main › editor › write_file · r/q");
    let headless = pending(&waiting);
    let (first, rest) = headless.split_once('\n').unwrap();
    assert_eq!(first, "waiting for approval (0123456789ab): main › editor › write_file");
    assert_eq!(rest.trim_end(), texts(here).split_once('\n').unwrap().1);
}

#[test]
fn what_always_asks_is_never_remembered() {
    let keys_of = |memory, lasts| {
        keys(AnswerOffer { memory, lasts, raises: false, fills: false }).iter().map(|key| key.key).collect::<String>()
    };
    assert_eq!(keys_of(Memory::CallOrTool, true), "ystaenq?");
    assert_eq!(keys_of(Memory::CallOnly, false), "ysenq?");
    assert_eq!(keys_of(Memory::Nothing, false), "yenq?");
    assert_eq!(coverage(&request(), true), "`write_file` with any arguments");
    let mut narrow = request();
    let (call, tool) = ("`touch x\u{202e}` in /home".into(), "any command that begins with `touch`, in /home".into());
    narrow.question.covers = Some(Coverage { call, tool });
    let shown =
        explanation(&narrow, AnswerOffer { memory: Memory::CallOrTool, lasts: true, raises: false, fills: false });
    assert_eq!(shown[1], "s  yes, and `touch x\\u{202e}` in /home for the agent editor, until you leave");
    assert!(shown[2].contains("any command that begins with `touch`, in /home"), "{}", shown[2]);
}
