//! What can be done about a mistake, as data: the library knows no flag, no variable and no file of a front end, and each
//! front end words a remedy with its own.

use std::fmt;
use std::path::PathBuf;

/// What can be done about a mistake or a failure. Its `Display` names nothing of a front end, so that a program which
/// embeds the library can show it; a front end with flags and files of its own words each variant with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Advice that names nothing of a front end.
    Text(String),
    /// Name the agent that a run starts with, in the project or when the run is started.
    ChooseEntry {
        /// Which agents there are, in words.
        agents: String,
    },
    /// Choose a model for an agent whose file names none.
    ChooseModel {
        /// The agent without a model.
        agent: String,
    },
    /// Choose a model before the first run, which needs one: for this run, or for all.
    ChooseFirstModel,
    /// Choose a model for one agent, in place of the one that its file names.
    OverrideModel {
        /// An agent of the project.
        agent: String,
        /// The model that was chosen for all agents and that none of them uses.
        model: String,
    },
    /// Start the run again with another model for every agent.
    ReplaceModels {
        /// The project, as it was named.
        project: PathBuf,
        /// A model that can be asked.
        model: String,
        /// Whether that is known, since its key is set; else no key is.
        has_key: bool,
    },
    /// Start the run with a model, so that agents which are created in it may use that model.
    StartWithModel {
        /// The model that a created agent names.
        model: String,
        /// Which models may be used as it is, in words.
        usable: String,
    },
    /// Choose a model of another provider, since this one does not let the program in.
    ChooseProvider,
    /// Wait, or choose another model, since the provider cannot answer now.
    TryLater,
    /// See whether the provider runs and is where it is looked for, or choose another model.
    FindProvider,
    /// Provide the key of a model provider.
    SetKey {
        /// The variables that such a key is usually kept in.
        variables: Vec<String>,
    },
    /// Say where a model provider is.
    SetAddress {
        /// The variables that such an address is usually kept in.
        variables: Vec<String>,
    },
    /// Set the certificates or the proxy that connections need here.
    SetConnections,
    /// Allow a request more time, for all requests or in the settings of the agent's model.
    AllowTime,
    /// Log in to a server, and go on with the run.
    LogIn {
        /// The name of its toolset.
        server: String,
        /// The directory of the project.
        project: PathBuf,
    },
    /// Answer questions before they are asked, or have a person or a program answer them.
    AnswerQuestions,
    /// Allow the whole run more.
    RaiseRunLimit,
    /// Allow each call of the agent more, in its file.
    RaiseAgentLimit,
    /// Wait until the next period of a budget begins, or allow the budget more.
    RaiseBudget {
        /// Of what length its periods are: `day`, `week` or `month`.
        per: String,
    },
    /// Make the files of a budget such that they can be read and written.
    MendBudget,
    /// Name the price of a model, or let a limit on money hold for what has a price.
    AllowUnknownPrices,
    /// Bound how often a tool of the provider is used, or let a limit on money leave it out.
    BoundServerTool,
    /// Begin a project, where there is none.
    NewProject,
    /// Begin a worker file, where one is empty or missing.
    NewWorkerFile {
        /// What its agent would be called.
        name: String,
    },
    /// Name a program by a name or a path at which it may be found.
    PlaceProgram,
    /// Name a Python interpreter, or make one for the project.
    ChoosePython,
    /// Name the interpreter itself, where a script that looks for one was named.
    NameInterpreter,
    /// Find out which fence there is, or do without one.
    FindFence,
    /// Accept the thin fence, where the full one cannot be had.
    AcceptThinFence,
    /// Accept the thin fence, though it cannot keep what belongs to a repository from being changed.
    AcceptUnkeptRepository,
    /// Read a journal as one that a stranger has written.
    ReadAsForeign,
    /// Go on with the run that a journal belongs to, or name another file.
    ResumeRun {
        /// The journal.
        file: PathBuf,
    },
    /// Wait for the process that holds a journal, or only look at what it says.
    ShowRun,
    /// The runs that are kept can be listed.
    ListRuns,
    /// A run has to be begun before one can go on.
    BeginRun,
    /// A chat has to be begun before one can go on.
    BeginChat,
    /// Start the run from a place whose name is text, or without a record of it.
    RunElsewhere,
}

impl From<&str> for Remedy {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = match self {
            Self::Text(text) => text,
            Self::ChooseEntry { agents } => {
                return write!(f, "mark one with `entry: true`, or name the one to start with; {agents}");
            }
            Self::ChooseModel { agent } => {
                return write!(f, "write `model:` in its file, or choose a model for `{agent}`");
            }
            Self::OverrideModel { agent, model } => {
                return write!(
                    f,
                    "choose `{model}` for one agent, such as `{agent}`, to replace the model of its file"
                );
            }
            Self::ReplaceModels { model, .. } => {
                return write!(f, "choose another model for every agent, such as `{model}`");
            }
            Self::StartWithModel { model, usable } => {
                return write!(
                    f,
                    "{usable}; choose `{model}` for agents without a `model` of their own (their `compatible_models` \
                     must allow it)"
                );
            }
            Self::ChooseFirstModel => "choose a model for agents that name none",
            Self::ChooseProvider => "choose a model of another provider; `ollama` needs no key",
            Self::TryLater => "try again later, or choose another model",
            Self::FindProvider => "is it running, and is this its address? another model can be chosen",
            Self::SetKey { variables } => return write!(f, "provide the key, usually `{}`", variables.join("` or `")),
            Self::SetAddress { variables } => {
                return write!(f, "provide the address, usually `{}`", variables.join("` or `"));
            }
            Self::LogIn { server, .. } => return write!(f, "log in to `{server}`, and go on with the run"),
            Self::SetConnections => "set the certificates or the proxy of the connection",
            Self::AllowTime => "allow the connection or `timeout_seconds` more time",
            Self::AnswerQuestions => "give approvals that answer, or an approver who can be asked",
            Self::RaiseRunLimit => "the limits of the run, or `runtime.limits` in the manifest, allow more",
            Self::RaiseAgentLimit => "`limits` in the agent's file allows more",
            Self::RaiseBudget { per } => {
                return write!(f, "a new {per} begins with all of it; or allow the budget more");
            }
            Self::MendBudget => {
                "make its files readable and writable; a ledger that is removed is begun anew from what runs have cost"
            }
            Self::AllowUnknownPrices => {
                "name its price, in USD per million tokens; where unknown prices are allowed, the limit holds for what \
                 has a price"
            }
            Self::BoundServerTool => {
                "`max_uses` in the agent's file bounds it; where unknown prices are allowed, the limit does not cover it"
            }
            Self::NewProject => "write a manifest or a worker file to start from",
            Self::NewWorkerFile { .. } => "a worker file has at least a `name`, and instructions below its keys",
            Self::PlaceProgram => {
                "a program is found by its name in directories of the system, and in those that the user names for \
                 shells; one by its path must lie where only you and root can write"
            }
            Self::ChoosePython => "name another interpreter, or make one for the project with the module `venv`",
            Self::NameInterpreter => "name the interpreter itself",
            Self::FindFence => "find out which fence there is; without the key it runs with your rights",
            Self::AcceptThinFence => "it has to be accepted that the fence is thin",
            Self::AcceptUnkeptRepository => "it has to be accepted that the fence is thin and does not keep it",
            Self::ReadAsForeign => "it can be read as a stranger's",
            Self::ResumeRun { file } => {
                return write!(f, "resume the run in `{}`, or name another file", file.display());
            }
            Self::ListRuns => "list the runs that are kept",
            Self::BeginRun => "begin one, or name a run of another project by its id",
            Self::BeginChat => "begin one, or name a chat of another project by its id",
            Self::ShowRun => "wait until it ends, or only look at it",
            Self::RunElsewhere => "run it from a place with another name, or without a journal",
        };
        f.write_str(fixed)
    }
}

/// How a front end words remedies where one has to stand within other text, such as a question or what a model reads.
/// The default is the `Display` of [`Remedy`].
#[derive(Clone, Copy)]
pub struct Wording(fn(&Remedy) -> String);

impl Wording {
    /// With the words of this function.
    pub const fn by(words: fn(&Remedy) -> String) -> Self {
        Self(words)
    }

    /// The remedy in words.
    pub fn of(self, remedy: &Remedy) -> String {
        (self.0)(remedy)
    }
}

impl Default for Wording {
    fn default() -> Self {
        Self(Remedy::to_string)
    }
}

impl fmt::Debug for Wording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wording")
    }
}
