//! Input and output classes.

use crate::session::{Run, of_type};
use crate::support::Sandbox;
use crate::{project, python, run_pydantic};

const SCHEMAS: &str = "\
from typing import Optional
from pydantic import BaseModel, Field
from llm_do.runtime import Attachment, WorkerArgs

class Topic(WorkerArgs):
    '''What to look at.'''
    topic: str = Field(min_length=2)
    note: Optional[str] = None
    def prompt_messages(self):
        parts = [f'Look at {self.topic}.']
        return parts + ([Attachment(self.note)] if self.note else [])

class Score(BaseModel):
    points: int
    why: str = 'because'

class Plain(BaseModel):
    topic: str

class Silent(WorkerArgs):
    topic: str
";

fn typed_run<'a>(sandbox: &'a Sandbox, flags: &[&'a str]) -> Run<'a> {
    let cache = python::cache().to_str().unwrap().to_owned();
    let fixed =
        [".", "-q", "--trust", "--no-stdin", "-m", "scripted:script.yaml", "--python", python::with_pydantic_ai()];
    Run::new(sandbox, &[&fixed, flags].concat()).with("XDG_CACHE_HOME", cache)
}

#[test]
fn pydantic_judges_the_input_and_the_class_tells_it_to_the_agent() {
    let main = "entry: true\nschema_in_ref: schemas.py:Topic";
    let files = [("schemas.py", SCHEMAS), ("note.txt", "a note")];
    let sandbox = project(&[("main", main)], &files, "- say: \"{{ heard }}\"\n");
    assert_eq!(typed_run(&sandbox, &["--input-json", r#"{"topic": "rain"}"#]).answer(), "Look at rain.\n");
    assert_eq!(typed_run(&sandbox, &["rain"]).answer(), "Look at rain.\n", "a bare text fills the one required field");
    let (events, _) =
        typed_run(&sandbox, &["--input-json", r#"{"topic": "rain", "note": "note.txt"}"#, "--json"]).events();
    let told = of_type(&events, "user_message")[0]["text"].as_str().unwrap();
    assert!(told.starts_with("Look at rain.") && told.contains("note.txt"), "{told}");
    let said = typed_run(&sandbox, &["--input-json", r#"{"topic": "r"}"#]).ended();
    assert!(said.stderr.contains("`topic`: String should have at least 2 characters"), "{}", said.stderr);
    let outside = typed_run(&sandbox, &["--input-json", r#"{"topic": "rain", "note": "/etc/hostname"}"#]).ended();
    assert!(outside.code != Some(0) && outside.stderr.contains("outside the project root"), "{}", outside.stderr);
}

#[test]
fn a_parent_sees_the_schema_of_the_class_and_reads_what_does_not_fit() {
    let script = "\
- { agent: main, round: 1, call: { child: { topic: r } } }
- { agent: main, round: 2, call: { child: { topic: rain } } }
- { agent: child, say: \"{{ heard }}\" }
- say: \"{{ result }}\"
";
    let workers = [("main", "entry: true\ntoolsets: [child]"), ("child", "schema_in_ref: schemas.Topic")];
    let sandbox = project(&workers, &[("schemas.py", SCHEMAS)], script);
    assert_eq!(run_pydantic(&sandbox, &["-q"]).answer(), "Look at rain.\n");
}

#[test]
fn pydantic_judges_the_answer_and_fills_what_it_leaves_out() {
    let main = "entry: true\nschema_out_ref: schemas.py:Score";
    let script = "- { agent: main, round: 1, say: '{\"points\": \"many\"}' }\n- say: '{\"points\": \"7\"}'\n";
    let sandbox = project(&[("main", main)], &[("schemas.py", SCHEMAS)], script);
    assert_eq!(run_pydantic(&sandbox, &["-q"]).answer(), "{\n  \"points\": 7,\n  \"why\": \"because\"\n}\n");
    let never = project(&[("main", main)], &[("schemas.py", SCHEMAS)], "- say: '{}'\n");
    let said = run_pydantic(&never, &["-q"]).failure(6);
    assert!(said.contains("`points`: Field required"), "{said}");
}

#[test]
fn code_gets_an_instance_of_the_output_class() {
    let kit = "\
from llm_do.runtime import CallContext, EntrySpec
from schemas import Score, Topic
async def main(args: Topic, ctx: CallContext):
    score = await ctx.call_agent('judge', args)
    assert isinstance(score, Score)
    return score.points + 1
start = EntrySpec(name='start', main=main, schema_in=Topic)
";
    let workers = [("judge", "schema_in_ref: schemas.py:Topic\nschema_out_ref: schemas.py:Score")];
    let sandbox = project(&workers, &[("kit.py", kit), ("schemas.py", SCHEMAS)], "- say: '{\"points\": 7}'\n");
    assert_eq!(typed_run(&sandbox, &["rain"]).answer(), "8\n");
    let said = typed_run(&sandbox, &["r"]).failure(1);
    assert!(said.contains("`topic`: String should have at least 2 characters"), "{said}");
}

#[test]
fn a_class_that_is_none_is_a_link_error_that_names_class_and_file() {
    let cases = [
        ("schema_in_ref: schemas.py:Plain", "the input class `Plain` of schemas.py does not subclass WorkerArgs"),
        ("schema_in_ref: schemas.py:Silent", "the input class `Silent` of schemas.py has no prompt_messages()"),
        ("schema_in_ref: schemas.py:Gone", "schemas.py has no class `Gone`"),
        ("schema_out_ref: schemas.py:SCHEMAS", "schemas.py has no class `SCHEMAS`"),
        ("schema_out_ref: schemas.Optional", "`Optional` of schemas is not a Pydantic model"),
        ("schema_out_ref: nowhere.Score", "No module named 'nowhere'"),
    ];
    for (key, words) in cases {
        let sandbox = project(&[("main", &format!("entry: true\n{key}"))], &[("schemas.py", SCHEMAS)], "- say: hi\n");
        let said = run_pydantic(&sandbox, &[]).failure(2);
        assert!(said.contains(words) && said.contains("main.worker:4:"), "{key}: {said}");
    }
}

#[test]
fn both_names_of_a_thing_mean_it_and_tools_see_the_files_of_their_turn() {
    let start = "\
from pydantic_ai import RunContext
from llm_do.runtime import AgentArgs, Attachment, CallContext, FunctionEntry

class Topic(AgentArgs):
    topic: str

    def prompt_messages(self):
        return [f'About {self.topic}', Attachment('notes.md')]

def look(ctx: RunContext[CallContext]) -> str:
    deps = ctx.deps
    files = [(file.path, file.media_type) for file in deps.attachments]
    return f'{deps.agent} {deps.config.invocation_name} {files} {(deps.project_root / \"notes.md\").read_text()}'

async def main(args: Topic, ctx: CallContext):
    return {'topic': args.topic, 'answer': await ctx.call_agent('writer', args)}

start = FunctionEntry(name='start', main=main, schema_in=Topic)
TOOLS = [look]
";
    let writer = "schema_in_ref: start.py:Topic\ntools: [look]\napproval: { look: allow }";
    let script = "- { agent: writer, round: 1, call: { look: {} } }\n- { agent: writer, say: '{{ result }}' }\n";
    let sandbox = project(&[("writer", writer)], &[("start.py", start), ("notes.md", "the notes")], script);
    let answer = typed_run(&sandbox, &["--input-json", r#"{"topic": "rain"}"#]).answer();
    let expected = "writer writer [('./notes.md', 'text/markdown')] the notes";
    assert_eq!(answer, format!("{{\n  \"topic\": \"rain\",\n  \"answer\": \"{expected}\"\n}}\n"));
}
