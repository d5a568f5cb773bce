//! Code that answers in the place of an agent: a pure function in a Python of its own, behind a fence. It reads the project,
//! writes nothing, reaches no network, calls nothing, and has so much time and memory for each answer.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

use super::{Beginning, Python, PythonFence, PythonHost};
use crate::escape::visible;
use crate::journal::StepValue;
use crate::message::RawJson;
use crate::tools::approval::Rule;
use crate::tools::protected::ProtectedFiles;
use crate::tools::source::Enclosure;

/// So long an answer may take.
const LONGEST: Duration = Duration::from_secs(10);
/// So many bytes an answer may take, beside what the interpreter itself does.
const MEMORY: u64 = 256 << 20;

/// Who answers where an agent and code have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerMode {
    /// The agent; the code rests.
    Agent,
    /// The agent; the code runs beside it, and where they differ is counted.
    Shadow,
    /// The code, and the agent where the code is not sure.
    Fallback,
    /// The code; the agent rests.
    Code,
}

impl AnswerMode {
    /// The words for it in files.
    pub(crate) const WORDS: &'static [&'static str] = &["agent", "shadow", "fallback", "code"];

    /// The mode that exactly this word means; `None` if it is none of [`AnswerMode::WORDS`].
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Agent, Self::Shadow, Self::Fallback, Self::Code].into_iter().find(|mode| mode.word() == word)
    }

    /// The word for it in files.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Shadow => "shadow",
            Self::Fallback => "fallback",
            Self::Code => "code",
        }
    }

    /// Whether an agent of this name may be asked.
    pub(crate) fn asks_agent(self) -> bool {
        match self {
            Self::Agent | Self::Shadow | Self::Fallback => true,
            Self::Code => false,
        }
    }

    /// Whether the answers of code count.
    pub(crate) fn answers_by_code(self) -> bool {
        match self {
            Self::Agent | Self::Shadow => false,
            Self::Fallback | Self::Code => true,
        }
    }
}

/// The code that has the name of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// Who answers.
    pub mode: AnswerMode,
    /// Beneath the project root.
    pub file: PathBuf,
    /// The function in it.
    pub function: String,
    /// Whether its calls ask; code asks if nothing is said.
    pub approval: Option<Rule>,
}

/// What code answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CodeAnswer {
    /// This.
    Value(RawJson),
    /// It does not know, and says why.
    NotSure(String),
    /// It failed, or took too long or too much, or could not be started.
    Failed(String),
}

impl StepValue for CodeAnswer {
    fn settled(self) -> Self {
        match self {
            Self::Value(value) => Self::Value(value.in_one_line()),
            Self::NotSure(_) | Self::Failed(_) => self,
        }
    }
}

/// The answer of code beside that of its agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShadowAnswer {
    /// What code answered.
    pub code: CodeAnswer,
    /// Whether that is what the agent answered.
    pub is_same: bool,
}

impl StepValue for ShadowAnswer {
    fn settled(self) -> Self {
        Self { code: self.code.settled(), ..self }
    }
}

/// Where such code lives: an interpreter for each file, started when it is first asked.
pub(crate) struct StandInHost {
    python: Python,
    root: PathBuf,
    protected: ProtectedFiles,
    is_unchanged: Arc<dyn Fn() -> bool + Send + Sync>,
    started: Mutex<BTreeMap<PathBuf, Arc<PythonHost>>>,
}

impl fmt::Debug for StandInHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandInHost")
    }
}

impl StandInHost {
    /// For the code of a project, none of which has run. What is protected stays as it is, and what was agreed to must still
    /// be what would be run.
    pub(crate) fn new(
        python: Python,
        root: PathBuf,
        protected: ProtectedFiles,
        is_unchanged: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Self {
        Self { python, root, protected, is_unchanged, started: Mutex::default() }
    }

    /// What the code answers. It can do nothing but that: whatever else it tries fails.
    pub(crate) async fn answer(&self, stand_in: &StandIn, value: &RawJson) -> CodeAnswer {
        let host = match self.host(stand_in).await {
            Ok(host) => host,
            Err(reason) => return CodeAnswer::Failed(reason),
        };
        let StandIn { file, function, .. } = stand_in;
        let asked = json!({"file": file, "function": function, "value": value});
        match host.live().ask_within::<CodeAnswer>("answer", &asked, LONGEST).await {
            Ok(answer) => answer,
            Err(reason) => CodeAnswer::Failed(visible(&reason).into_owned()),
        }
    }

    /// The interpreter of a file: one that has ended is followed by another.
    async fn host(&self, stand_in: &StandIn) -> Result<Arc<PythonHost>, String> {
        let mut started: MutexGuard<'_, _> = self.started.lock().await;
        if let Some(host) = started.get(&stand_in.file) {
            host.renew().await;
            return Ok(Arc::clone(host));
        }
        let is_unchanged = Arc::clone(&self.is_unchanged);
        // Reading files takes a while where there are many.
        if !matches!(tokio::task::spawn_blocking(move || is_unchanged()).await, Ok(true)) {
            return Err("the project's Python files have changed; start the program again to use them".to_owned());
        }
        let enclosure = Enclosure { read: Vec::new(), write: Vec::new(), network: false };
        let beginning = Beginning {
            python: self.python.clone(),
            root: self.root.clone(),
            files: vec![stand_in.file.clone()],
            fenced: Some(PythonFence { enclosure, protected: self.protected.clone() }),
            is_unchanged: Arc::clone(&self.is_unchanged),
            memory: Some(MEMORY),
        };
        let starting = tokio::time::timeout(2 * LONGEST, PythonHost::start(beginning)).await;
        let overdue = || format!("{} was not imported within {} s", stand_in.file.display(), 2 * LONGEST.as_secs());
        let (host, exports) = starting.map_err(|_| overdue())?.map_err(|error| error.to_string())?;
        if let Some(problem) = exports.problems.first() {
            return Err(format!("{}: {}", stand_in.file.display(), visible(&problem.fact)));
        }
        let host = Arc::new(host);
        started.insert(stand_in.file.clone(), Arc::clone(&host));
        Ok(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_its_word() {
        for word in AnswerMode::WORDS {
            assert_eq!(AnswerMode::parse(word).map(AnswerMode::word), Some(*word));
        }
        assert_eq!(AnswerMode::parse("Code"), None);
    }
}
