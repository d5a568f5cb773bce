//! A model that follows a script: for tests, for examples, and for people without a key.
//!
//! A script is a YAML list of rules. The first rule that matches decides the reply, so a reply is a pure function of the
//! agent and its history: a run can be repeated, resumed and replayed.
//!
//! ```yaml
//! - agent: desk                 # conditions: all that are given must hold
//!   heard: harbour              #   the newest message contains this text, letters of any case
//!   call: { reader: { topic: harbour } }
//! - agent: reader
//!   say: The crane carries 60 tonnes.
//! - agent: desk
//!   tool: reader                #   the newest message is the result of this tool
//!   say: "The notes say: {{ result }}"
//! ```
//!
//! Conditions: `agent`, `heard`, `tool`, `round` (1 for the first reply of a conversation). Actions: `say`, `call` (a
//! mapping from tools to arguments, or a list of such mappings), `think`, `usage`, `finish` to play a reply that is not
//! whole, and `fail` to play a provider's error. Texts are Jinja templates over `heard`, `result`, `agent` and `round`.

use std::sync::Arc;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, context};

use super::exchange::MOST_CALLS;
use super::meter::Meter;
use super::{Conversation, Fault, Head, Model, ModelError};
use crate::BoxFuture;
use crate::event::{EventKind, Events};
use crate::message::{
    Arguments, Content, Finish, Message, RawJson, Reply, ReplyPart, TextPart, ThinkingPart, ToolCall, Usage,
};
use crate::syntax::claim::Bearing::Neutral;
use crate::syntax::diagnostic::{Diagnostic, Diagnostics, FileId, Located, Report, Sources, Span};
use crate::syntax::table::Repeats::Allowed;
use crate::syntax::table::Shape::{AnyOf, AnyText, Integer, JsonObject, List, Map, Name, Object, OneOf, Text};
use crate::syntax::table::{Fields, Reading, Table, optional};
use crate::syntax::tree::{self, Language, Node, NodeKind};

/// The file that a worker file's `model: scripted:FILE` names.
pub(crate) fn script_of(model: &Located<String>) -> Option<Located<String>> {
    let file = model.value.strip_prefix("scripted:").or_else(|| model.value.strip_prefix("scripted/"))?;
    Some(Located { value: file.to_owned(), span: model.span })
}

/// A parsed script.
#[derive(Clone, Debug, Default)]
pub struct Script {
    rules: Vec<ScriptRule>,
}

#[derive(Clone, Debug)]
struct ScriptRule {
    agent: Option<String>,
    heard: Option<String>,
    tool: Option<String>,
    round: Option<u64>,
    think: Option<String>,
    say: Option<String>,
    calls: Vec<(String, Node)>,
    usage: (u64, u64),
    finish: Option<Finish>,
    fail: Option<ScriptedFailure>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ScriptedFailure {
    FixRequest,
    Authenticate,
    Wait,
    ContextTooLong,
    GiveUp,
}

const FAILURES: &[(&str, ScriptedFailure)] = &[
    ("fix_request", ScriptedFailure::FixRequest),
    ("authenticate", ScriptedFailure::Authenticate),
    ("wait", ScriptedFailure::Wait),
    ("context_too_long", ScriptedFailure::ContextTooLong),
    ("give_up", ScriptedFailure::GiveUp),
];

const FINISHES: &[(&str, Finish)] = &[
    ("length", Finish::Length),
    ("context_window", Finish::ContextWindow),
    ("content_filter", Finish::ContentFilter),
    ("error", Finish::Error),
];

const RULE: Table = Table {
    what: "a rule of a script",
    keys: &[
        optional("agent", Name, Neutral, "only for this agent"),
        optional("heard", Text, Neutral, "only if the newest message contains this"),
        optional("tool", Text, Neutral, "only if the newest message is the result of this tool"),
        optional("round", Integer { min: 1 }, Neutral, "only for this reply of a conversation, from 1"),
        optional("say", AnyText, Neutral, "the text of the reply"),
        optional("think", AnyText, Neutral, "shown as the model's thinking"),
        optional(
            "call",
            AnyOf(&[Map { of: &JsonObject }, List { of: &Map { of: &JsonObject }, least: 1, repeats: Allowed }]),
            Neutral,
            "tools to call, with their arguments",
        ),
        optional("usage", Object(&USAGE), Neutral, "tokens to report"),
        optional(
            "finish",
            OneOf(&["length", "context_window", "content_filter", "error"]),
            Neutral,
            "why the reply is not whole",
        ),
        optional(
            "fail",
            OneOf(&["fix_request", "authenticate", "wait", "context_too_long", "give_up"]),
            Neutral,
            "an error instead of a reply",
        ),
    ],
};

const USAGE: Table = Table {
    what: "`usage`",
    keys: &[
        optional("input", Integer { min: 0 }, Neutral, "tokens that went in"),
        optional("output", Integer { min: 0 }, Neutral, "tokens that came out"),
    ],
};

impl Script {
    /// Parses a script that stands in a file of its own.
    pub(crate) fn parse(path: impl Into<std::path::PathBuf>, text: &str) -> Result<Self, Report> {
        let mut sources = Sources::default();
        let file = sources.add(path.into(), text.to_owned());
        let mut problems = Diagnostics::default();
        match Self::read(file, text, &mut problems) {
            Some(script) if !problems.has_errors() => Ok(script),
            Some(_) | None => Err(Report::new(Arc::new(sources), problems)),
        }
    }

    /// Collects every mistake among the problems.
    pub(crate) fn read(file: FileId, text: &str, problems: &mut Diagnostics) -> Option<Self> {
        let node = tree::parse_yaml(tree::Text::whole(file, text), problems);
        let start = Span { file, start: 0, end: 0 };
        let Some(node) = node else {
            if !problems.has_errors() {
                problems.push(Diagnostic::error(start, "the script is empty").hint("write a list of rules"));
            }
            return None;
        };
        let NodeKind::List(rules) = &node.kind else {
            let fact = format!("a script is a list of rules, not {}", node.describe(Language::Yaml));
            problems.push(Diagnostic::error(node.span, fact).hint("start each rule with `- `"));
            return None;
        };
        let rules = rules.iter().filter_map(|rule| {
            let good = RULE.check(rule, Reading::yaml("main"), problems);
            let rule = ScriptRule::read(&RULE.fields(rule), problems);
            rule.filter(|_| good)
        });
        Some(Self { rules: rules.collect() })
    }
}

impl ScriptRule {
    fn read(fields: &Fields<'_>, problems: &mut Diagnostics) -> Option<Self> {
        let text = |key| fields.text(key).map(|text| text.value);
        for key in ["say", "think"] {
            if let Some(template) = fields.text(key) {
                check_template(&template, problems);
            }
        }
        let fail = text("fail").and_then(|word| FAILURES.iter().find(|(name, _)| *name == word).map(|(_, fail)| *fail));
        if fields.get("say").is_none() && fields.get("call").is_none() && fail.is_none() {
            problems
                .push(Diagnostic::error(fields.span, "a rule that does nothing").hint("give `say`, `call` or `fail`"));
            return None;
        }
        let usage = fields.object("usage");
        let tokens = |key| usage.as_ref().and_then(|usage| usage.count(key)).unwrap_or(0);
        Some(Self {
            agent: text("agent"),
            heard: text("heard").map(|heard| heard.to_lowercase()),
            tool: text("tool"),
            round: fields.count("round"),
            think: text("think"),
            say: text("say"),
            calls: calls(fields.get("call")),
            usage: (tokens("input"), tokens("output")),
            finish: text("finish")
                .and_then(|word| FINISHES.iter().find(|(name, _)| *name == word).map(|(_, finish)| *finish)),
            fail,
        })
    }

    fn matches(&self, agent: &str, heard: &NewestMessage<'_>) -> bool {
        let is_agent = self.agent.as_ref().is_none_or(|wanted| wanted == agent);
        let is_round = self.round.is_none_or(|wanted| wanted == heard.round);
        let is_tool = self.tool.as_ref().is_none_or(|wanted| heard.tools.contains(&wanted.as_str()));
        let is_heard = self.heard.as_ref().is_none_or(|wanted| heard.text.to_lowercase().contains(wanted.as_str()));
        is_agent && is_round && is_tool && is_heard
    }
}

fn check_template(template: &Located<String>, problems: &mut Diagnostics) {
    if let Err(error) = environment().template_from_str(&template.value) {
        let reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        problems.push(Diagnostic::error(template.span, format!("the template does not parse: {reason}")));
    }
}

fn calls(node: Option<&Node>) -> Vec<(String, Node)> {
    let in_map = |node: &Node| match &node.kind {
        NodeKind::Map(entries) => entries.iter().map(|entry| (entry.key.value.clone(), entry.value.clone())).collect(),
        _ => Vec::new(),
    };
    match node.map(|node| (&node.kind, node)) {
        Some((NodeKind::List(items), _)) => items.iter().flat_map(in_map).collect(),
        Some((_, node)) => in_map(node),
        None => Vec::new(),
    }
}

fn environment() -> Environment<'static> {
    const FUEL: u64 = 100_000;
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    // A text with a template in it ends as one without.
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("the usual delimiters are valid"));
    environment
}

/// The newest message, as rules see it.
struct NewestMessage<'a> {
    text: String,
    tools: Vec<&'a str>,
    round: u64,
}

impl<'a> NewestMessage<'a> {
    fn of(history: &'a [Message]) -> Self {
        let round = history.iter().filter(|message| matches!(message, Message::Assistant(_))).count() as u64 + 1;
        let (text, tools) = match history.last() {
            // A script answers what was said, and not what is told of the turn before.
            Some(Message::User(message)) => match message.parts.as_slice() {
                [told, said @ ..] if told.is_interruption() => (Content::shown(said), Vec::new()),
                said => (Content::shown(said), Vec::new()),
            },
            Some(Message::Tool(message)) => {
                let texts = message.parts.iter().map(|result| match &result.outcome {
                    Ok(parts) => Content::shown(parts),
                    Err(error) => format!("error: {error}"),
                });
                (
                    texts.collect::<Vec<_>>().join("\n"),
                    message.parts.iter().map(|result| result.tool.as_str()).collect(),
                )
            }
            Some(Message::Assistant(reply)) => (reply.text(), Vec::new()),
            None => (String::new(), Vec::new()),
        };
        Self { text, tools, round }
    }
}

/// The model of a script.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedModel(pub Arc<Script>);

impl Model for ScriptedModel {
    fn open(&self, head: Head) -> Box<dyn Conversation> {
        Box::new(Acting { script: Arc::clone(&self.0), head })
    }
}

struct Acting {
    script: Arc<Script>,
    head: Head,
}

impl Conversation for Acting {
    fn reply<'a>(
        &'a mut self,
        history: &'a [Message],
        _: &'a mut dyn Meter,
        events: &'a Events,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let reply = self.act(history)?;
            if reply.tool_calls().count() > MOST_CALLS {
                return Err(fault(format!("the script has more than {MOST_CALLS} tool calls in one reply")));
            }
            for part in &reply.parts {
                match part {
                    ReplyPart::Text(part) => events.send_delta(|| EventKind::TextDelta { text: part.text.clone() }),
                    ReplyPart::Thinking(part) => {
                        events.send_delta(|| EventKind::ThinkingDelta { text: part.text.clone() });
                    }
                    ReplyPart::ToolCall(_) | ReplyPart::ServerTool(_) | ReplyPart::Refusal(_) => {}
                }
            }
            Ok(reply)
        })
    }

    // A reply is a function of the history alone.
    fn rewind(&mut self, _: usize) {}

    fn longest_wait(&self) -> Option<Duration> {
        None
    }

    // A rule decides by the history alone: it would say the first half again, and not the rest.
    fn goes_on_with(&self, _: &Reply) -> bool {
        false
    }
}

impl Acting {
    fn act(&self, history: &[Message]) -> Result<Reply, ModelError> {
        let heard = NewestMessage::of(history);
        let rule = self.script.rules.iter().find(|rule| rule.matches(&self.head.agent, &heard)).ok_or_else(|| {
            let newest = crate::escape::visible_start(&heard.text, 80).into_owned();
            fault(format!(
                "the script has no rule for agent `{}` (round {}) that hears `{newest}`",
                self.head.agent, heard.round
            ))
        })?;
        if let Some(fail) = rule.fail {
            return Err(failure(fail, self.render(rule.say.as_deref().unwrap_or("the script says so"), &heard)?));
        }
        let mut parts = Vec::new();
        if let Some(think) = &rule.think {
            parts.push(ReplyPart::Thinking(ThinkingPart { text: self.render(think, &heard)?, private: None }));
        }
        if let Some(say) = &rule.say {
            parts.push(ReplyPart::Text(TextPart { text: self.render(say, &heard)?, private: None }));
        }
        for (index, (tool, arguments)) in rule.calls.iter().enumerate() {
            let mut arguments = arguments.clone();
            self.render_node(&mut arguments, &heard)?;
            parts.push(ReplyPart::ToolCall(ToolCall {
                id: format!("call_{}_{}", heard.round, index + 1),
                tool: tool.clone(),
                arguments: Arguments::Object(RawJson::from_valid(arguments.to_json())),
                private: None,
            }));
        }
        let (input_tokens, output_tokens) = rule.usage;
        Ok(Reply {
            finish: rule.finish.unwrap_or(if rule.calls.is_empty() { Finish::Stop } else { Finish::ToolCalls }),
            finish_reason: rule.finish.map(|_| "the script says so".to_owned()),
            parts,
            model: self.head.model.to_string(),
            usage: Usage { requests: 1, input_tokens, output_tokens, ..Usage::default() },
        })
    }

    fn render(&self, template: &str, heard: &NewestMessage<'_>) -> Result<String, ModelError> {
        if !template.contains("{{") && !template.contains("{%") {
            return Ok(template.to_owned());
        }
        let values =
            context! { heard => &heard.text, result => &heard.text, agent => &*self.head.agent, round => heard.round };
        environment().render_str(template, values).map_err(|error| fault(format!("a text of the script: {error}")))
    }

    // Bounded by the nesting that the parser allows.
    fn render_node(&self, node: &mut Node, heard: &NewestMessage<'_>) -> Result<(), ModelError> {
        match &mut node.kind {
            NodeKind::Text(text) => *text = self.render(text, heard)?,
            NodeKind::List(items) => items.iter_mut().try_for_each(|item| self.render_node(item, heard))?,
            NodeKind::Map(entries) => {
                entries.iter_mut().try_for_each(|entry| self.render_node(&mut entry.value, heard))?;
            }
            NodeKind::Null | NodeKind::Bool(_) | NodeKind::Integer(_) | NodeKind::Number(..) => {}
        }
        Ok(())
    }
}

fn fault(message: String) -> ModelError {
    ModelError::GiveUp(Fault { message, ..Fault::default() })
}

fn failure(kind: ScriptedFailure, message: String) -> ModelError {
    let fault = Fault { message, ..Fault::default() };
    match kind {
        ScriptedFailure::FixRequest => ModelError::FixRequest(fault),
        ScriptedFailure::Authenticate => ModelError::Authenticate(fault),
        ScriptedFailure::Wait => ModelError::Wait(fault),
        ScriptedFailure::ContextTooLong => ModelError::ContextTooLong(fault),
        ScriptedFailure::GiveUp => ModelError::GiveUp(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ModelSettings;
    use super::super::name::ModelName;
    use super::*;
    use crate::message::ToolResult;

    const DESK: &str = "\
- agent: desk
  heard: harbour
  call: { reader: { topic: '{{ heard }}' } }
- agent: reader
  say: The crane carries 60 tonnes.
- agent: desk
  tool: reader
  say: 'The notes say: {{ result }}'
";

    fn act(script: &str, agent: &str, history: &[Message]) -> Result<Reply, ModelError> {
        let script = Arc::new(Script::parse("script.yaml", script).expect("a good script"));
        let head = Head {
            agent: Arc::from(agent),
            model: ModelName::parse("scripted:script.yaml").unwrap(),
            instructions: String::new(),
            tools: Vec::new(),
            server_tools: Vec::new(),
            settings: ModelSettings::default(),
            output: None,
            may_call: true,
            stream: true,
        };
        Acting { script, head }.act(history)
    }

    #[test]
    fn eight_lines_are_enough_for_a_loop_of_two_agents() {
        let asked = act(DESK, "desk", &[Message::user("What about the Harbour?")]).unwrap();
        let call = asked.tool_calls().next().unwrap().clone();
        assert_eq!(call.tool, "reader");
        let Arguments::Object(arguments) = &call.arguments else { panic!("an object") };
        assert_eq!(arguments.get(), r#"{"topic":"What about the Harbour?"}"#);
        let two_lines = act("- say: \"{{ heard }}\\n\"", "desk", &[Message::user("x")]).unwrap();
        assert_eq!(two_lines.text(), "x\n");
        let answer = act(DESK, "reader", &[Message::user("harbour")]).unwrap();
        let content = vec![Content::text(answer.text())];
        let result = ToolResult { id: call.id, tool: call.tool, outcome: Ok(content) };
        let history = [Message::user("Harbour?"), Message::Assistant(asked), Message::tool_results(vec![result])];
        assert_eq!(act(DESK, "desk", &history).unwrap().text(), "The notes say: The crane carries 60 tonnes.");
    }

    #[test]
    fn rounds_count_the_replies_of_a_conversation() {
        let script =
            "- {round: 1, say: first}\n- {round: 2, say: second}\n- {say: later, usage: {input: 3, output: 4}}";
        let first = act(script, "a", &[Message::user("x")]).unwrap();
        assert_eq!(first.text(), "first");
        let mut history = vec![Message::user("x"), Message::Assistant(first), Message::user("y")];
        assert_eq!(act(script, "a", &history).unwrap().text(), "second");
        history.extend([Message::Assistant(act(script, "a", &history).unwrap()), Message::user("z")]);
        let later = act(script, "a", &history).unwrap();
        assert_eq!((later.text().as_str(), later.usage.input_tokens, later.usage.output_tokens), ("later", 3, 4));
    }

    #[test]
    fn what_the_script_does_not_foresee_is_a_clear_error() {
        let error = act(DESK, "editor", &[Message::user("hi")]).unwrap_err().to_string();
        assert!(error.contains("no rule for agent `editor` (round 1) that hears `hi`"), "{error}");
        let error = act("- {fail: wait, say: overloaded}", "a", &[]).unwrap_err();
        assert!(matches!(error, ModelError::Wait(fault) if fault.message == "overloaded"));
        let error = act("- {say: '{{ nobody }}'}", "a", &[]).unwrap_err().to_string();
        assert!(error.contains("undefined"), "{error}");
    }

    #[test]
    fn the_manual_tells_of_every_key() {
        let manual = include_str!("../../../../docs/scripted-models.md");
        let rows = manual.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let told: Vec<&str> = rows.clone().map(|(key, _)| key).collect();
        assert_eq!(told, RULE.keys.iter().map(|key| key.name).collect::<Vec<_>>());
        let meaning = |wanted: &str| rows.clone().find(|(key, _)| *key == wanted).unwrap().1;
        assert!(USAGE.keys.iter().all(|key| meaning("usage").contains(&format!("`{}`", key.name))));
        assert!(FAILURES.iter().all(|(word, _)| meaning("fail").contains(&format!("`{word}`"))));
        assert!(FINISHES.iter().all(|(word, _)| meaning("finish").contains(&format!("`{word}`"))));
    }

    #[test]
    fn mistakes_in_a_script_are_located() {
        let cases = [
            ("", "the script is empty"),
            ("say: hi", "a script is a list of rules, not a mapping"),
            ("- agnet: a\n  say: x", "unknown key `agnet` in a rule of a script"),
            ("- agent: a", "a rule that does nothing"),
            ("- say: '{{ x '", "the template does not parse"),
            ("- call: [shell]", "expected a mapping, found the text `shell`"),
            ("- fail: often", "expected one of `fix_request`"),
        ];
        for (text, fact) in cases {
            let report = Script::parse("s.yaml", text).unwrap_err().to_string();
            assert!(report.contains(fact), "{text}: {report}");
            assert!(report.contains("s.yaml:1:"), "{report}");
        }
    }
}
