//! `/v1` by the client that programs use for it.

use std::fs;

use fake_llm::{FakeLlm, FakeReply, FakeScript, InjectedFault, On};
use parts::{is_wanted, parts, printed};
use serde_json::Value;

use super::desk::Desk;

const CLIENT: &str = r#"
import os
import openai
from pydantic import BaseModel

client = openai.OpenAI(base_url=os.environ["BASE"] + "/v1", api_key=os.environ["ASK"], max_retries=0)
print([model.id for model in client.models.list()])

hello = [{"role": "user", "content": "hello"}]
answer = client.chat.completions.create(model="plain/main", messages=hello)
print(answer.choices[0].message.content, answer.choices[0].finish_reason)

talk = [{"role": "system", "content": "Be brief."}, *hello, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "again"}]
raw = client.chat.completions.with_raw_response.create(model="plain/main", messages=talk, temperature=0.2, seed=4)
print(raw.parse().choices[0].message.content, raw.headers["x-llm-do-ignored"])

pieces, usage = [], None
for chunk in client.chat.completions.create(model="plain/main", messages=hello, stream=True, stream_options={"include_usage": True}):
    pieces += [choice.delta.content or "" for choice in chunk.choices]
    usage = chunk.usage or usage
print("".join(pieces), usage.total_tokens >= 0)

class Wind(BaseModel):
    wind: str

place = [{"role": "user", "content": '{"place": "quay"}'}]
parsed = client.chat.completions.parse(model="typed/main", messages=place, response_format=Wind)
print(parsed.choices[0].message.parsed)

raw = client.chat.completions.with_raw_response.create(model="demo/main", messages=hello)
question = raw.headers["x-llm-do-question"]
asked = raw.parse().choices[0]
print(asked.finish_reason, "`write_file`" in asked.message.content, question[:12] in asked.message.content, len(question))
last = [chunk for chunk in client.chat.completions.create(model="demo/main", messages=hello, stream=True)][-1]
print(len(last.metadata["x-llm-do-question"]))

def refused(**asked):
    try:
        client.chat.completions.create(**{"messages": hello, **asked})
    except openai.APIStatusError as error:
        print(type(error).__name__, error.status_code, error.code, error.param)

refused(model="plain/nobody")
refused(model="typed/main")
refused(model="plain/main", tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
refused(model="plain/main", response_format={"type": "json_object"})
refused(model="plain/main", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://elsewhere.example/a.png"}}]}])
refused(model="limited/main")
refused(model="cloud/main")
client = openai.OpenAI(base_url=os.environ["BASE"] + "/v1", api_key="wrong", max_retries=0)
refused(model="plain/main")
"#;

const PRINTED: &str = "['cloud/main', 'demo/main', 'limited/main', 'plain/main', 'typed/main']
You said hello. stop
You said again. seed, temperature
You said hello. True
wind='west'
stop True True 64
64
NotFoundError 404 model_not_found model
BadRequestError 400 wrong_request messages
BadRequestError 400 wrong_request tools
BadRequestError 400 wrong_request response_format
BadRequestError 400 wrong_request messages
BadRequestError 400 limit_reached None
InternalServerError 502 provider None
AuthenticationError 401 refused None
";

#[test]
fn the_official_client_asks_agents_as_models() {
    if !is_wanted("openai") {
        return;
    }
    let fake = FakeLlm::start(
        FakeScript::new().otherwise(FakeReply::text("never")).fault(On::Every, InjectedFault::status(400)),
    );
    let mut desk = Desk::new().with("ANTHROPIC_BASE_URL", &fake.anthropic_url()).with("ANTHROPIC_API_KEY", "k");
    desk.write(
        "typed/main.worker",
        "---\nname: main\nmodel: scripted:script.yaml\nschema_in: {type: object, properties: {place: {type: string}}, required: [place]}\n\
         schema_out: {type: object, properties: {wind: {type: string}}, required: [wind]}\n---\nAnswer.",
    );
    desk.write("typed/script.yaml", "- say: '{\"wind\": \"west\"}'\n");
    desk.write("cloud/main.worker", "---\nname: main\nmodel: anthropic:claude-haiku-4-5\n---\nAnswer.");
    desk.write(
        "limited/main.worker",
        "---\nname: main\nmodel: scripted:script.yaml\ntoolsets: [filesystem_project_ro]\nlimits: {max_requests: 2}\n---\nAnswer.",
    );
    desk.write("limited/script.yaml", "- call:\n    list_files: {}\n");
    desk.serve(&["demo", "plain", "typed", "cloud", "limited"]);
    let script = desk.path("client.py");
    fs::write(&script, CLIENT).unwrap();
    let mut client = parts::command(&parts().join("openai/bin/python"), &desk.path("."));
    client.arg(&script).env("BASE", desk.root()).env("ASK", desk.key("ask"));
    assert_eq!(printed(&mut client), PRINTED);
    // All of them are kept as runs of their own.
    let (_, runs) = desk.api("GET", "/api/runs", &Value::Null);
    assert!(runs["runs"].as_array().unwrap().iter().all(|run| run["kind"] == "v1"), "{runs}");
}
