//! Tools written in Rust: an async function over an argument struct. The struct is the check of the arguments, and its
//! schema and doc comments are what the model reads.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::future::Future;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::approval::{DeclaredVerdict, Judgement, PermittedCall, Question, Rule, Verdict};
use super::misfit::parse;
use super::python::stand_in::StandInHost;
use super::python::{PythonHost, RenderedPart};
use super::{CallContext, Capabilities, DeclaredTool, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};
use crate::BoxFuture;
use crate::json_schema;
use crate::message::{Content, RawJson};

/// A tool in Rust, to be registered with a project. Without a verdict of its own it asks.
pub struct Tool {
    spec: ToolSpec,
    verdict: Rule,
    check: Check,
    /// The schema of a tool whose arguments nothing else checks.
    schema: Option<serde_json::Value>,
    run: Run,
}

type Check = Box<dyn Fn(&RawJson) -> Result<(), String> + Send + Sync>;
/// What a call of a tool does.
pub type Run =
    Box<dyn for<'a> Fn(RawJson, &'a CallContext<'a>) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> + Send + Sync>;

impl Tool {
    /// A plain async function. Its name is the tool's, the doc comment of its argument struct the description.
    ///
    /// ```
    /// # use llm_do::{Rule, Tool};
    /// /// Counts the words of a text
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// #[serde(deny_unknown_fields)]
    /// struct WordCount {
    ///     text: String,
    /// }
    ///
    /// async fn word_count(arguments: WordCount) -> Result<usize, String> {
    ///     Ok(arguments.text.split_whitespace().count())
    /// }
    ///
    /// let tool = Tool::new(word_count).verdict(Rule::Allow);
    /// assert_eq!(tool.description(), "Counts the words of a text");
    /// ```
    pub fn new<A, R, E, F, Running>(function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + 'static,
        E: Display,
        F: Fn(A) -> Running + Send + Sync + 'static,
        Running: Future<Output = Result<R, E>> + Send + 'static,
    {
        let run: Run = Box::new(move |arguments, _| {
            let running = parse::<A>(&arguments).map(&function);
            Box::pin(async move { finished(running.map_err(ToolError::Failed)?.await) })
        });
        Self::built::<A>(std::any::type_name::<F>(), run)
    }

    /// A function that also sees its caller: it may call agents and other tools. What it does besides is not recorded,
    /// so that after a crash it does not run again, unless it is [`Tool::resumable`].
    pub fn with_context<A, R, E, F>(name: &str, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + 'static,
        E: Display,
        F: for<'a> Fn(A, &'a CallContext<'a>) -> BoxFuture<'a, Result<R, E>> + Send + Sync + 'static,
    {
        let function = Arc::new(function);
        let run: Run = Box::new(move |arguments, cx| {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let arguments = parse::<A>(&arguments).map_err(ToolError::Failed)?;
                finished(function(arguments, cx).await)
            })
        });
        let mut tool = Self::built::<A>(name, run);
        tool.spec.kind = ToolKind::Code;
        tool
    }

    fn built<A: DeserializeOwned + JsonSchema>(type_name: &str, run: Run) -> Self {
        let spec = ToolSpec::of::<A>(type_name.rsplit("::").next().unwrap_or(type_name));
        Self {
            spec,
            verdict: Rule::Ask,
            check: Box::new(|arguments| parse::<A>(arguments).map(drop)),
            schema: None,
            run,
        }
    }

    /// A tool that is known by its spec alone, such as one in another process: its arguments are held against the
    /// schema.
    pub fn of(spec: ToolSpec, verdict: Rule, run: Run) -> Self {
        let schema = Some(spec.parameters.to().unwrap_or_default());
        Self { spec, verdict, check: Box::new(|_| Ok(())), schema, run }
    }

    /// The same tool with this verdict on its calls, in place of the one it had.
    #[must_use]
    pub fn verdict(self, verdict: Rule) -> Self {
        Self { verdict, ..self }
    }

    /// The same tool under another name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.spec.name);
        self
    }

    /// The same tool, whose calls run after the calls of sequential tools before it, never beside them.
    #[must_use]
    pub fn sequential(mut self) -> Self {
        self.spec.order = Order::Sequential;
        self
    }

    /// The same tool, which may run again if it is not known whether a call of it happened.
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.spec.repeat = Repeat::Repeatable;
        self
    }

    /// The same tool, which may run again from its beginning: what it calls is then answered from the journal, the rest
    /// happens again. It must call the same each time.
    #[must_use]
    pub fn resumable(self) -> Self {
        self.repeatable()
    }

    /// The name that the model calls it by.
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    /// What the model reads about it.
    pub fn description(&self) -> &str {
        &self.spec.description
    }

    pub(crate) fn declared(&self) -> DeclaredTool {
        DeclaredTool {
            name: self.spec.name.clone().into(),
            verdict: match self.verdict {
                Rule::Allow => DeclaredVerdict::Allow,
                Rule::Ask => DeclaredVerdict::Ask,
                Rule::Block => DeclaredVerdict::Block,
            },
            capabilities: Capabilities::OF_CODE,
        }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tool({})", self.spec.name)
    }
}

/// What is wrong with arguments, where a schema is all that is known of them.
pub async fn fits(schema: &serde_json::Value, arguments: &RawJson) -> Result<(), String> {
    let value = parse::<serde_json::Value>(arguments)?;
    json_schema::violation(schema, &value).await.map_or(Ok(()), Err)
}

/// A tool as a toolset of one.
pub(crate) struct OneTool(pub Arc<Tool>);

impl Toolset for OneTool {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![self.0.spec.clone()]
    }

    fn judge<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move {
            (self.0.check)(arguments)?;
            if let Some(schema) = &self.0.schema {
                fits(schema, arguments).await?;
            }
            let verdict = match self.0.verdict {
                Rule::Allow => Verdict::Allow,
                Rule::Ask => Verdict::Ask(Question::because(format!("runs the tool `{tool}`, which is code"))),
                Rule::Block => Verdict::Block("the tool is blocked".to_owned()),
            };
            Ok(verdict.into())
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        (self.0.run)(call.arguments().clone(), cx)
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

/// A function in Rust where a run starts, to be registered with a project. It has no model and no toolsets of its own:
/// it calls agents and the project's single tools by name.
///
/// ```
/// # use llm_do::{Content, FunctionEntry, RawJson};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Question {
///     text: String,
/// }
///
/// let entry = FunctionEntry::new("main", |question: Question, cx| {
///     Box::pin(async move {
///         let answer = cx.call_agent("expert", &RawJson::of(&question.text)).await?;
///         Ok(Content::shown(&answer))
///     })
/// });
/// assert_eq!(entry.name(), "main");
/// ```
pub struct FunctionEntry {
    name: String,
    schema: RawJson,
    run: RunEntry,
}

/// What an entry does: an input that fits its schema → its output.
pub type RunEntry =
    Box<dyn for<'a> Fn(RawJson, &'a CallContext<'a>) -> BoxFuture<'a, Result<RawJson, ToolError>> + Send + Sync>;

impl FunctionEntry {
    /// An entry whose input is held against the schema of `A`, and whose output is the JSON of `R`.
    pub fn new<A, R, F>(name: impl Into<String>, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + 'static,
        F: for<'a> Fn(A, &'a CallContext<'a>) -> BoxFuture<'a, Result<R, ToolError>> + Send + Sync + 'static,
    {
        let function = Arc::new(function);
        let run: RunEntry = Box::new(move |input, cx| {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let input = parse::<A>(&input).map_err(ToolError::Failed)?;
                Ok(RawJson::of(&function(input, cx).await?))
            })
        });
        let schema = schemars::SchemaGenerator::default().into_root_schema_for::<A>();
        Self { name: name.into(), schema: RawJson::of(&schema), run }
    }

    /// An entry of another kind, such as one in Python or in another process.
    pub fn of(name: String, schema: RawJson, run: RunEntry) -> Self {
        Self { name, schema, run }
    }

    /// The name that a manifest refers to it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The JSON Schema of its input.
    pub(crate) fn schema(&self) -> &RawJson {
        &self.schema
    }

    pub(crate) fn run<'a>(
        &'a self,
        input: RawJson,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<RawJson, ToolError>> {
        (self.run)(input, cx)
    }
}

/// Makes toolsets: one for each call of an agent that uses it.
pub(crate) type ToolsetFactory =
    Arc<dyn Fn(ToolsetContext) -> BoxFuture<'static, Result<MadeToolset, String>> + Send + Sync>;

/// The call that a toolset is made for.
#[derive(Clone, Debug, Serialize)]
pub struct ToolsetContext {
    /// The agent whose call it is.
    pub agent: String,
    /// `provider:model`.
    pub model: String,
    /// How many agents stand above it.
    pub depth: usize,
}

/// What a factory gives.
pub enum MadeToolset {
    /// A toolset in Rust.
    Live(Box<dyn Toolset>),
    /// One of ours, as a manifest would define it, and rules for its tools.
    Defined {
        /// Its definition, as JSON.
        definition: RawJson,
        /// Rules for its tools, by name.
        rules: BTreeMap<String, Rule>,
    },
}

/// Makes the message of an agent's typed input, or says what is wrong with the input.
pub(crate) type InputRenderer =
    Arc<dyn Fn(serde_json::Value) -> BoxFuture<'static, Result<Vec<RenderedPart>, String>> + Send + Sync>;

/// What the embedding program offers by name.
#[derive(Clone, Default)]
pub struct Registry {
    pub tools: BTreeMap<String, Arc<Tool>>,
    pub toolsets: BTreeMap<String, ToolsetFactory>,
    pub entry: Option<Arc<FunctionEntry>>,
    /// How the typed inputs of agents are told, by agent.
    pub inputs: BTreeMap<String, InputRenderer>,
    /// The interpreter that has imported the project's Python files.
    pub python: Option<Arc<PythonHost>>,
    /// Where code lives that answers in the place of agents.
    pub(crate) stand_ins: Option<Arc<StandInHost>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.entry.as_ref().map(|entry| entry.name());
        write!(f, "Registry({:?}, {:?}, {entry:?})", self.tools.keys(), self.toolsets.keys())
    }
}

/// Text as it is, other values as such.
fn finished<R: Serialize + 'static, E: Display>(result: Result<R, E>) -> Result<Vec<Content>, ToolError> {
    let value = result.map_err(|error| ToolError::Failed(error.to_string()))?;
    // The usual case needs no JSON in between.
    if let Some(text) = (&value as &dyn Any).downcast_ref::<String>() {
        return Ok(vec![Content::text(text)]);
    }
    Ok(vec![Content::value(&RawJson::of(&value))])
}
