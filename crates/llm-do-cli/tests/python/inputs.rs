//! What entries, agents and tools are given: any value, and files that can be read and passed on.

use fake_llm::{FakeLlm, FakeReply, FakeScript};

use crate::session::Run;
use crate::{ask, project, python, run, run_pydantic};

/// An entry function that shows what it was given, and passes it on.
const SHOWING: &str = "\
from llm_do.runtime import CallContext
async def main(args, ctx: CallContext):
    files = [(file.name, file.media_type, file.read_text(), open(file).read()) for file in args.attachments]
    return f'{args.input!r} {str(args)!r} {args.value!r} {files} {[file.name for file in ctx.attachments]}'
";

fn with_entry(kit: &str, script: &str, manifest: &str) -> crate::support::Sandbox {
    let sandbox = project(&[("child", "")], &[("kit.py", kit)], script);
    sandbox.file(
        "project.json",
        &format!(
            r#"{{"version": 1, "entry": {{"function": "kit.py:main"{manifest}}}, "worker_files": ["child.worker"], "python_files": ["kit.py"]}}"#
        ),
    );
    sandbox.file("notes.md", "some notes").file("more.txt", "more");
    sandbox
}

/// A run without a prompt.
fn run_with<'a>(sandbox: &'a crate::support::Sandbox, words: &[&'a str]) -> Run<'a> {
    let cache = python::cache().to_str().unwrap().to_owned();
    Run::new(sandbox, &[&[".", "--trust", "-q", "-m", "scripted:script.yaml"], words].concat())
        .with("XDG_CACHE_HOME", cache)
}

#[test]
fn an_entry_function_gets_texts_lists_and_objects_with_their_files() {
    let sandbox = with_entry(SHOWING, "- say: hi\n", "");
    let notes = "('notes.md', 'text/markdown', 'some notes', 'some notes')";
    let more = "('more.txt', 'text/plain', 'more', 'more')";
    let cases: &[(&[&str], String)] = &[
        (&["hi"], "'hi' 'hi' 'hi' [] []".into()),
        (&["hi", "-f", "notes.md"], format!("'hi' 'hi' 'hi' [{notes}] ['notes.md']")),
        (
            &["--input-json", r#"{"input": "x", "attachments": ["more.txt"]}"#, "-f", "notes.md"],
            format!("'x' 'x' {{'attachments': ['more.txt'], 'input': 'x'}} [{more}, {notes}] ['more.txt', 'notes.md']"),
        ),
        (
            &["--input-json", r#"["a", {"attachment": "notes.md"}, "b"]"#],
            format!("'a\\nb' 'a\\nb' ['a', {{'attachment': 'notes.md'}}, 'b'] [{notes}] ['notes.md']"),
        ),
        (
            &["--input-json", r#"{"task": "dig"}"#],
            r#"'{\n  "task": "dig"\n}' '{\n  "task": "dig"\n}' {'task': 'dig'} [] []"#.into(),
        ),
        (&["--input-json", "[1, 2]"], r"'[\n  1,\n  2\n]' '[\n  1,\n  2\n]' [1, 2] [] []".into()),
        (&["--input-json", "7"], "'7' '7' 7 [] []".into()),
    ];
    for (words, expected) in cases {
        assert_eq!(run_with(&sandbox, words).answer(), format!("{expected}\n"), "{words:?}");
    }
    let sandbox = with_entry(SHOWING, "- say: hi\n", r#", "input": {"task": "dig"}"#);
    assert!(run_with(&sandbox, &[]).answer().contains("{'task': 'dig'}"));
    // As a `WorkerArgs`, where there is Pydantic.
    let kit = "\
from llm_do.runtime import WorkerArgs
async def main(input_data: WorkerArgs, runtime):
    return f'{isinstance(input_data, WorkerArgs)} {input_data.prompt_messages()}'
";
    let sandbox = with_entry(kit, "- say: hi\n", "");
    assert_eq!(run_with(&sandbox, &["hi", "--python", python::with_pydantic_ai()]).answer(), "True ['hi']\n");
}

#[test]
fn files_of_an_entry_are_passed_on_without_a_question_wherever_they_are() {
    let kit = "\
from llm_do.runtime import CallContext
async def main(args, ctx: CallContext):
    said = [await ctx.call_agent('child', args)]
    said.append(await ctx.call_agent('child', {'input': 'dict', 'attachments': args.attachments}))
    said.append(await ctx.call_agent('child', ['list', *ctx.attachments]))
    said.append(await ctx.call('child', {'input': 'mixed', 'attachments': [*args.attachments, 'notes.md']}))
    said.append(await ctx.call('length', {'file': args.attachments[0]}))
    return said
def length(file: str) -> int:
    return len(open(file).read())
from llm_do.toolsets.approval import set_toolset_approval_config
set_toolset_approval_config(length, {'length': {'pre_approved': True}})
TOOLS = [length]
";
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("far.txt");
    std::fs::write(&file, "far away").unwrap();
    let sandbox = with_entry(kit, "- say: \"{{ heard }}\"\n", "");
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("ok")));
    let said = ask(&sandbox, &fake, &["-f", file.to_str().unwrap()]).answer();
    assert_eq!(said.split_whitespace().collect::<String>(), r#"["ok","ok","ok","ok",8]"#);
    let requests = fake.requests();
    assert_eq!(requests.len(), 4);
    for (request, words) in requests.iter().zip(["hi", "dict", "list", "mixed"]) {
        let body = request.body.to_string();
        assert!(body.contains(words) && body.contains("far away"), "{body}");
    }
    assert!(requests[3].body.to_string().contains("some notes"));
}

#[test]
fn a_typed_agent_takes_files_beside_its_input_and_a_tool_passes_on_what_its_agent_was_given() {
    let kit = "\
from llm_do import call_worker_async
from llm_do.runtime import CallContext
async def hand(ctx: CallContext, how: str) -> str:
    files = ['notes.md'] if how == 'path' else ctx.attachments
    data = 'rain' if how == 'text' else {'topic': 'rain'}
    return (await call_worker_async(None, 'typed', data, ctx, attachments=files)).output
TOOLS = [hand]
";
    let main = "entry: true\ntools: [hand]\napproval: { hand: allow }";
    let typed = "schema_in: { type: object, properties: { topic: { type: string } }, required: [topic], additionalProperties: false }";
    for how in ["path", "given", "text"] {
        let sandbox = project(&[("main", main), ("typed", typed)], &[("kit.py", kit)], "");
        sandbox.file("notes.md", "some notes");
        let call = fake_llm::FakeCall::new("hand", serde_json::json!({"how": how}));
        let fake = FakeLlm::start(
            FakeScript::new()
                .reply(FakeReply::calls([call]))
                .reply(FakeReply::text("inner"))
                .reply(FakeReply::text("outer")),
        );
        assert_eq!(ask(&sandbox, &fake, &["-f", "notes.md"]).answer(), "outer\n", "{how}");
        let body = fake.requests()[1].body.to_string();
        assert!(body.contains("rain") && body.contains("some notes"), "{how}: {body}");
    }
}

#[test]
fn an_input_class_speaks_for_itself_to_an_agent_without_one() {
    let kit = "\
from pydantic_ai import RunContext
from llm_do.runtime import Attachment, CallContext, WorkerArgs
class Pitch(WorkerArgs):
    topic: str
    def prompt_messages(self):
        return [f'Pitch {self.topic}!', Attachment('notes.md')]
async def pitch(ctx: RunContext[CallContext]) -> str:
    return await ctx.deps.call_agent('plain', Pitch(topic='rain')) + await ctx.deps.call('typed', Pitch(topic='sun'))
TOOLS = [pitch]
";
    let main = "entry: true\ntools: [pitch]\napproval: { pitch: allow }";
    let typed = "schema_in_ref: kit.py:Pitch";
    let script = "- { agent: main, round: 1, call: { pitch: {} } }\n- { agent: plain, say: \"plain {{ heard }} \" }\n\
                  - { agent: typed, say: \"typed {{ heard }}\" }\n- say: \"{{ result }}\"\n";
    let sandbox = project(&[("main", main), ("plain", ""), ("typed", typed)], &[("kit.py", kit)], script);
    sandbox.file("notes.md", "some notes");
    let said = run_pydantic(&sandbox, &["-q"]).answer();
    assert!(said.contains("plain Pitch rain!") && said.contains("typed Pitch sun!"), "{said}");
}

#[test]
fn an_agent_without_a_schema_takes_any_value() {
    let kit = "\
from llm_do.runtime import CallContext
async def tell(ctx: CallContext) -> str:
    values = [{'topic': 'AI safety'}, [1, 2], 7, True, None, {}, {'input': 'x', 'tone': 'dry'}, {'input': 'plain'},
              {'attachments': 'none'}, {'topic': 'rain', 'attachments': ['notes.md']}]
    return '|'.join([await ctx.call_agent('child', value) for value in values])
TOOLS = [tell]
";
    let main = "entry: true\ntools: [tell]\napproval: { tell: allow }";
    let script = "- { agent: main, round: 1, call: { tell: {} } }\n- { agent: child, say: \"{{ heard }}\" }\n- say: \"{{ result }}\"\n";
    let sandbox = project(&[("main", main), ("child", "")], &[("kit.py", kit)], script);
    sandbox.file("notes.md", "some notes");
    let said = run(&sandbox, &["-q"]).answer();
    let expected = [
        "{\n  \"topic\": \"AI safety\"\n}",
        "[\n  1,\n  2\n]",
        "7",
        "true",
        "(no input)",
        "(no input)",
        "{\n  \"input\": \"x\",\n  \"tone\": \"dry\"\n}",
        "plain",
        "{\n  \"attachments\": \"none\"\n}",
    ];
    assert!(said.starts_with(&expected.join("|")), "{said}");
    assert!(said.contains("\"topic\": \"rain\"\n}") && !said.contains("\"notes.md\""), "{said}");
    // A model, too, and the entry, whoever starts the run.
    let main = "entry: true\ntoolsets: [child]";
    let of_model = "- { agent: main, round: 1, call: { child: { topic: rain } } }\n- { agent: child, say: \"{{ heard }}\" }\n- say: \"{{ result }}\"\n";
    let sandbox = project(&[("main", main), ("child", "")], &[], of_model);
    assert_eq!(run(&sandbox, &["-q"]).answer(), "{\n  \"topic\": \"rain\"\n}\n");
    let sandbox = project(&[("main", "entry: true")], &[], "- say: \"{{ heard }}\"\n");
    assert_eq!(run_with(&sandbox, &["--input-json", r#"{"task": "dig"}"#]).answer(), "{\n  \"task\": \"dig\"\n}\n");
}

#[test]
fn an_absolute_path_of_a_file_in_the_project_is_inside_it() {
    let kit = "\
import os
from llm_do.runtime import CallContext
async def main(args, ctx: CallContext):
    here = os.path.dirname(__file__)
    said = [await ctx.call_agent('child', {'input': 'x', 'attachments': [os.path.join(here, 'notes.md')]})]
    said.append(await ctx.call_agent('child', {'input': 'y', 'attachments': [os.path.join(os.path.realpath(here), 'notes.md')]}))
    said.append(await ctx.call_agent('child', {'input': 'z', 'attachments': [args.input]}))
    return said
";
    let sandbox = with_entry(kit, "- say: fine\n", "");
    let outside = tempfile::NamedTempFile::new().unwrap();
    let said = run_with(&sandbox, &[outside.path().to_str().unwrap()]).failure(4);
    assert!(said.contains("lies outside the project") && !said.contains("notes.md"), "{said}");
    assert!(run_with(&sandbox, &["more.txt"]).answer().contains("fine"));
    let secret = sandbox.path().join(".env");
    std::fs::write(&secret, "KEY=1").unwrap();
    assert!(run_with(&sandbox, &[secret.to_str().unwrap()]).failure(4).contains("looks like a secret"));
}

#[test]
fn one_newline_at_the_end_of_what_is_piped_is_not_said() {
    let sandbox = project(&[("main", "entry: true")], &[], "- say: \"Study {{ heard }}.\"\n");
    for (piped, heard) in [("ferns\n", "ferns"), ("ferns\r\n", "ferns"), ("ferns\n\n", "ferns\n"), ("ferns", "ferns")] {
        for words in [&[][..], &["-"][..]] {
            let said = run_with(&sandbox, words).hearing(piped).answer();
            assert_eq!(said, format!("Study {heard}.\n"), "{piped:?} {words:?}");
        }
    }
}
