//! The interpreter of a project, for as long as the project runs: one process, or one after another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::interpreter::{Interpreter, PythonState, StartError, read};
use super::{
    Beginning, EntryShape, ExportedToolset, Exports, FoundClass, PythonEndpoint, PythonTool, RenderedPart, WantedClass,
};
use crate::event::Events;
use crate::message::RawJson;
use crate::tools::callback::Sight;
use crate::tools::rpc::output::ChildOutput;
use crate::tools::{CallContext, ToolError};

/// A project's Python. Dropped, its interpreter is killed with everything it started.
pub struct PythonHost {
    live: Mutex<Arc<Interpreter>>,
    shared: Arc<PythonState>,
    beginning: Beginning,
    /// Held while another interpreter is started.
    renewing: tokio::sync::Mutex<()>,
    /// The single tools, by name.
    pub tools: BTreeMap<String, PythonTool>,
    toolsets: Vec<ExportedToolset>,
    /// The model providers that files register.
    pub providers: BTreeSet<String>,
    /// Where they are, as far as a caller has asked.
    endpoints: Mutex<BTreeMap<String, PythonEndpoint>>,
    /// The classes that were asked for, and what they are.
    classes: Mutex<(Vec<WantedClass>, Vec<FoundClass>)>,
}

impl PythonHost {
    /// Starts the interpreter and imports the files, each once.
    pub(crate) async fn start(beginning: Beginning) -> Result<(Self, Exports), StartError> {
        let shared = Arc::new(PythonState {
            output: Arc::new(ChildOutput::of("Python")),
            answers: Mutex::default(),
            tracebacks: beginning.python.tracebacks,
        });
        let (interpreter, exports) = Interpreter::start(&beginning, Arc::clone(&shared)).await?;
        let host = Self {
            live: Mutex::new(Arc::new(interpreter)),
            shared,
            beginning,
            renewing: tokio::sync::Mutex::default(),
            tools: tools_of(&exports),
            toolsets: exports.toolsets.clone(),
            providers: exports.providers.clone(),
            endpoints: Mutex::default(),
            classes: Mutex::default(),
        };
        Ok((host, exports))
    }

    /// The interpreter that lives now. What it has made is known to no other.
    pub(super) fn live(&self) -> Arc<Interpreter> {
        Arc::clone(&self.live.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts another interpreter if the last one has ended, and says what people should know of that.
    pub(crate) async fn renew(&self) -> Option<String> {
        if !self.live().is_gone() {
            return None;
        }
        let _alone = self.renewing.lock().await;
        let ended = self.live();
        if !ended.is_gone() {
            return None;
        }
        Some(match self.successor().await {
            Ok(interpreter) => {
                *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(interpreter);
                "Python had ended and was started again; what its code kept in memory is gone".to_owned()
            }
            Err(reason) => {
                let words = format!("Python had ended and was not started again: {reason}");
                ended.refuse(words.clone());
                words
            }
        })
    }

    /// The next interpreter. What was agreed to, and what was linked and told to models, must hold for it too.
    async fn successor(&self) -> Result<Interpreter, String> {
        let is_unchanged = Arc::clone(&self.beginning.is_unchanged);
        // Reading files takes a while where there are many.
        if !matches!(tokio::task::spawn_blocking(move || is_unchanged()).await, Ok(true)) {
            return Err("the project's Python files have changed; start the program again to use them".to_owned());
        }
        let started = Interpreter::start(&self.beginning, Arc::clone(&self.shared)).await;
        let (interpreter, exports) = started.map_err(|error| error.to_string())?;
        if let Some(problem) = exports.problems.first() {
            return Err(format!("{}: {}", problem.file.display(), problem.fact));
        }
        let (wanted, found) = self.classes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_same = tools_of(&exports) == self.tools
            && exports.toolsets == self.toolsets
            && exports.providers == self.providers
            && classes(&interpreter, &wanted).await? == found;
        if is_same { Ok(interpreter) } else { Err("its files now offer something else than before".to_owned()) }
    }

    /// From now on what code prints outside of calls is told to these; so is what it printed before.
    pub(crate) fn attach(&self, events: Events) {
        self.shared.output.attach(events);
    }

    /// Which agents answer code with an instance of a class.
    pub(crate) fn expect_answers(&self, answers: HashMap<String, String>) {
        *self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    }

    /// Asks where a model is, if its provider is one that a file registers.
    #[cfg(feature = "front-end")]
    pub(crate) async fn find_endpoint(&self, provider: &str, model: &str) -> Result<(), String> {
        if !self.providers.contains(provider) {
            return Ok(());
        }
        let failed = |reason: String| format!("the factory of the provider `{provider}` failed: {reason}");
        let asked = json!({"provider": provider, "model": model});
        let found: PythonEndpoint = self.ask("endpoint", &asked).await.map_err(failed)?;
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        match endpoints.insert(provider.to_owned(), found.clone()) {
            Some(other) if other != found => {
                Err(failed(format!("its models are in two places, {} and {}", other.base_url, found.base_url)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Where the models of a provider are, if a caller has asked for one of them before.
    pub fn endpoint(&self, provider: &str) -> Option<PythonEndpoint> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner).get(provider).cloned()
    }

    /// Looks for classes that worker files name, and gives each as it was found; an error is that of the interpreter.
    pub(crate) async fn classes(&self, wanted: &[WantedClass]) -> Result<Vec<FoundClass>, String> {
        let found = classes(&self.live(), wanted).await?;
        *self.classes.lock().unwrap_or_else(PoisonError::into_inner) = (wanted.to_vec(), found.clone());
        Ok(found)
    }

    /// Asks what an entry function takes; an error says why it is not known.
    pub(crate) async fn entry_shape(&self, file: &Path, function: &str) -> Result<EntryShape, String> {
        self.ask("entry", &json!({"file": file, "function": function})).await
    }

    /// The message that an input class makes of a value, or what is wrong with the value.
    pub(crate) async fn render(&self, class: &str, value: Value) -> Result<Vec<RenderedPart>, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum PythonRenderReply {
            Parts(Vec<RenderedPart>),
            Invalid(String),
        }
        match self.ask("render", &json!({"class": class, "value": value})).await? {
            PythonRenderReply::Parts(parts) => Ok(parts),
            PythonRenderReply::Invalid(violation) => Err(violation),
        }
    }

    /// An answer as its class sees it, or what is wrong with it.
    pub(crate) async fn validate(&self, class: &str, text: &str) -> Result<RawJson, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum PythonValidationReply {
            Value(RawJson),
            Invalid(String),
        }
        match self.ask("validate", &json!({"class": class, "text": text})).await? {
            PythonValidationReply::Value(value) => Ok(value),
            PythonValidationReply::Invalid(violation) => Err(violation),
        }
    }

    /// Runs an entry function.
    pub(crate) async fn enter(
        &self,
        file: &Path,
        function: &str,
        value: &RawJson,
        cx: &CallContext<'_>,
    ) -> Result<RawJson, ToolError> {
        #[derive(Deserialize)]
        struct PythonEntryReply {
            value: RawJson,
        }
        let asked = PythonEntryCall { file, function, value };
        let answer = self.live().within("enter", asked, Sight::Full, Duration::ZERO, cx).await?;
        let PythonEntryReply { value } = read(&answer).map_err(ToolError::Failed)?;
        Ok(value)
    }

    async fn ask<T: DeserializeOwned>(&self, method: &str, params: &Value) -> Result<T, String> {
        self.live().ask(method, params).await
    }
}

impl std::fmt::Debug for PythonHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PythonHost")
    }
}

fn tools_of(exports: &Exports) -> BTreeMap<String, PythonTool> {
    exports.tools.iter().map(|tool| (tool.tool.name.clone(), tool.tool.clone())).collect()
}

/// Most projects want no classes. Then nothing is asked: the answer would have to wait for Python's event loop, which
/// is still being imported, and which a run that calls no code never needs.
async fn classes(interpreter: &Interpreter, wanted: &[WantedClass]) -> Result<Vec<FoundClass>, String> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    interpreter.ask("classes", &json!({"classes": wanted})).await
}

#[derive(Serialize)]
struct PythonEntryCall<'a> {
    file: &'a Path,
    function: &'a str,
    value: &'a RawJson,
}
