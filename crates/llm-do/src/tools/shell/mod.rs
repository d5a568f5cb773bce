//! Commands without a shell: one command, split into words once, judged word by word, and executed as exactly what was
//! judged.
//!
//! A built-in shell runs only what fits the `grammar` of its commands; a configured one follows its `rules`. Both
//! start programs of the system only (`program`), within bounds that end with them (`process`), behind a
//! [fence](super::fence) where the kernel offers one.

pub(crate) mod danger;
pub(crate) mod directory;
pub(crate) mod grammar;
mod launch;
pub(crate) mod limited;
mod operands;
mod options;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only a keeper is alone in its namespace"))]
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod rules;
mod way;
pub(crate) mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::approval::{CallSubject, Coverage, Judgement, PermittedCall, Question, Rule, Verdict, digest, strictest};
use super::fence::private::PrivateDirectory;
use super::fence::shelter::{Repositories, Trace};
use super::fence::{Fence, FenceKind};
use super::misfit::parse;
use super::protected::{ProtectedFiles, Target};
use super::repository;
use super::source::{Access, Grammar, READ_ONLY_COMMANDS, ShellConfig, ShellRule};
use super::{CallContext, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};
use crate::BoxFuture;
use crate::escape::{visible, visible_start};
use crate::event::{EventKind, Events};
use crate::message::{Content, RawJson};
use crate::syntax::names;
use directory::{CommandDirectory, CommandPath};
use grammar::Fit;
use launch::ShelterCache;
use operands::Operands;
use process::{LONGEST, ProcessEnd, ProcessResult, Supervisors};
use program::{Grounds, Programs, ShellProgram};
use words::Word;

/// One shell of an agent. Several of them are one tool, and their rules are tried in order.
#[derive(Clone, Debug)]
pub struct ShellPart {
    /// As the agent's file calls it.
    pub name: String,
    pub config: ShellConfig,
    /// What definitions around the shell say of the tool, the nearest first.
    pub variants: Vec<Rule>,
    /// What the agent's file says of the tool.
    pub worker: Option<Rule>,
}

/// Where a shell works and what it must know of its surroundings.
pub struct Surroundings<'a> {
    pub directory: &'a Path,
    pub project_root: &'a Path,
    pub fence: Arc<Fence>,
    pub protected: ProtectedFiles,
    /// Programs that rules name by their paths, as they were when the project was loaded.
    pub programs: &'a BTreeMap<String, ShellProgram>,
    /// Where the user wants programs to be found by name, besides the directories of the system.
    pub directories: &'a [PathBuf],
}

impl Surroundings<'_> {
    fn grounds(&self, parts: &[ShellPart]) -> Grounds {
        let written: Vec<PathBuf> = written(parts, self.project_root).collect();
        Grounds::new(self.project_root, self.directory, written.iter().map(PathBuf::as_path))
    }

    /// Directories of the user's in which programs are not looked for, and why.
    pub(crate) fn left_out(&self, parts: &[ShellPart]) -> Vec<String> {
        self.grounds(parts).own_directories(self.directories).1
    }
}

/// A live shell.
pub struct Shell {
    /// The name of its tool.
    tool: String,
    parts: Vec<ShellPart>,
    directory: CommandDirectory,
    project_root: PathBuf,
    fence: Arc<Fence>,
    protected: ProtectedFiles,
    programs: Programs,
    supervisors: Supervisors,
    private: PrivateDirectory,
    sheltered: ShelterCache,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShellArguments {
    /// One command with its arguments
    command: String,
    /// Seconds after which it is ended, 1 to 300
    #[serde(default = "default_timeout")]
    timeout: u64,
}

fn default_timeout() -> u64 {
    30
}

/// What the model reads of a command.
#[derive(Serialize)]
struct CommandOutput<'a> {
    stdout: &'a str,
    stderr: &'a str,
    exit_code: i32,
    truncated: bool,
}

/// A command, and by which part and rule it runs.
struct CommandMatch<'s> {
    part: &'s ShellPart,
    /// The words that the rule begins with.
    pattern: String,
    /// How many words of the command these are.
    length: usize,
    /// The rule, unless the grammar or the default decided.
    rule: Option<&'s ShellRule>,
    by: By,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Grammar,
    Rule(Rule),
    Default(Rule),
}

impl CommandMatch<'_> {
    /// A rule that begins with `git` is also about what `git` keeps in its directories.
    fn repositories(&self) -> Repositories {
        let is_git = matches!(self.by, By::Rule(_)) && self.pattern.split(' ').next() == Some("git");
        if is_git { Repositories::Written } else { Repositories::ReadOnly }
    }

    /// Which rule asks.
    fn asks(&self) -> String {
        let pattern = visible(&self.pattern);
        if self.rule.is_some_and(|rule| rule.approval == Rule::Allow) {
            format!("the rule `{pattern}` of this shell does not cover these arguments")
        } else {
            format!("this shell says `{pattern}: ask`")
        }
    }
}

/// What a command turned out to be.
struct CommandJudgement<'s> {
    words: Vec<Word>,
    matched: CommandMatch<'s>,
    fit: Fit,
    /// Of the commands' own rules.
    verdict: Verdict,
}

impl CommandJudgement<'_> {
    fn judgement(self, wants_subject: bool) -> Judgement {
        let Self { words, matched, verdict, .. } = self;
        let about = wants_subject.then(|| CallSubject::Words(words.into_iter().map(|word| word.text).collect()));
        let judgement = Judgement::from(verdict).about(about).ruled(matched.part.worker);
        matched.part.variants.iter().fold(judgement, |judgement, rule| judgement.under(Some(*rule)))
    }
}

impl Shell {
    /// Opens a shell whose tool has this name; an error says why its working directory cannot be used.
    pub fn open(tool: &str, parts: Vec<ShellPart>, surroundings: Surroundings<'_>) -> Result<Self, String> {
        let directory = CommandDirectory::open(surroundings.directory)?;
        let directory = directory.hiding(surroundings.protected.private());
        let grounds = surroundings.grounds(&parts);
        let (directories, _) = grounds.own_directories(surroundings.directories);
        let programs = Programs::new(grounds, directories, surroundings.programs);
        let supervisors =
            Supervisors::new(programs.find("true").ok().map(|program| program.path), Arc::clone(&surroundings.fence));
        Ok(Self {
            tool: tool.to_owned(),
            parts,
            directory,
            project_root: surroundings.project_root.to_owned(),
            fence: surroundings.fence,
            protected: surroundings.protected,
            programs,
            supervisors,
            private: PrivateDirectory::default(),
            sheltered: ShelterCache::default(),
        })
    }

    fn judge_command(&self, command: &str) -> Result<CommandJudgement<'_>, String> {
        let words = words::split(command)?;
        words::program_name(&words[0])?;
        let matched = self.matched(&words)?;
        let (fit, verdict) = match matched.by {
            By::Grammar => {
                let fit = grammar::fit(&words, &self.directory, &self.hidden_when_met(&[], Repositories::ReadOnly))
                    .map_err(|reason| format!("`{}`: {reason}", visible(&words[0].text)))?;
                let verdict = self.grammar_verdict(&words, &matched, &fit);
                (fit, verdict)
            }
            By::Rule(rule) | By::Default(rule) => (Fit::default(), self.rule_verdict(rule, &words, &matched)),
        };
        Ok(CommandJudgement { words, matched, fit, verdict })
    }

    /// The first rule of all parts that is about the command; a default comes after all rules.
    fn matched(&self, words: &[Word]) -> Result<CommandMatch<'_>, String> {
        if let Some(matched) = self.parts.iter().find_map(|part| part.matched(words)) {
            return Ok(matched);
        }
        match self.default() {
            Some((part, default @ (Rule::Allow | Rule::Ask))) => {
                Ok(CommandMatch { part, pattern: "*".to_owned(), length: 1, rule: None, by: By::Default(default) })
            }
            Some((_, Rule::Block)) | None => Err(self.unknown(words)),
        }
    }

    /// The first default that was written. Linking refuses others that say something else.
    fn default(&self) -> Option<(&ShellPart, Rule)> {
        self.parts.iter().find_map(|part| match &part.config.grammar {
            Grammar::Rules { default, .. } => Some((part, (*default)?)),
            Grammar::ReadOnly | Grammar::FileOps => None,
        })
    }

    /// Why nothing matches, and what there is.
    fn unknown(&self, words: &[Word]) -> String {
        let shown = visible_start(&words[0].text, 80);
        let names = self.command_names();
        let instead = names::instead(&shown, "commands", names.iter().map(String::as_str));
        format!("`{shown}` is not among the commands here; {instead}")
    }

    fn command_names(&self) -> Vec<String> {
        let names = self.parts.iter().flat_map(|part| match &part.config.grammar {
            Grammar::ReadOnly => READ_ONLY_COMMANDS.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
            Grammar::FileOps => FILE_COMMANDS.iter().map(|name| (*name).to_owned()).collect(),
            Grammar::Rules { rules, .. } => {
                let allowed = rules.iter().filter(|rule| rule.approval != Rule::Block);
                allowed.map(|rule| rule.pattern.join(" ")).collect()
            }
        });
        let any = self.default().filter(|(_, default)| *default != Rule::Block).map(|_| "any other".to_owned());
        names.chain(any).collect()
    }

    fn grammar_verdict(&self, words: &[Word], matched: &CommandMatch<'_>, fit: &Fit) -> Verdict {
        let question =
            |reason: String| self.question(words, matched, &fit.changes, &self.operands(words, matched), reason);
        let is_protected = |place: &CommandPath| {
            let target = Target::of_path(&self.directory.path.join(&place.beneath));
            let target = target.map(|target| target.within(&self.directory.path));
            target.map_or(true, |target| {
                self.protected.touched([&target]).is_some() || self.protected.reason(&target).is_some()
            })
        };
        if fit.changes.iter().any(is_protected) {
            return Verdict::AlwaysAsk(question("changes a file that decides what a project does".to_owned()));
        }
        if !fit.doubts.is_empty() {
            return Verdict::AskAnyway(question(fit.doubts.join("; ")));
        }
        if fit.changes.is_empty() { Verdict::Allow } else { Verdict::Ask(question("changes files".to_owned())) }
    }

    fn operands(&self, words: &[Word], matched: &CommandMatch<'_>) -> Operands {
        Operands::of(&words[matched.length..], &self.directory.path)
    }

    fn rule_verdict(&self, rule: Rule, words: &[Word], matched: &CommandMatch<'_>) -> Verdict {
        if rule == Rule::Block {
            return Verdict::Block(format!("`{}` is blocked by a rule", visible(&matched.pattern)));
        }
        let operands = self.operands(words, matched);
        let question = |reason: String| self.question(words, matched, &[], &operands, reason);
        let secret = || self.secret_operand(words, matched, &operands);
        if let Some(reason) = self.protected_operand(words, matched, &operands) {
            // The approver should know what is read and shown to a model as well as what is written.
            let both = secret().map(|secret| format!("{secret}; {reason}"));
            return Verdict::AlwaysAsk(question(both.unwrap_or(reason)));
        }
        let is_free = rule == Rule::Allow || matches!(matched.by, By::Default(_));
        let danger = || self.danger(words, matched).filter(|_| is_free);
        let exception = secret().or_else(danger);
        if let Some(reason) = exception {
            return Verdict::AskAnyway(question(reason));
        }
        match (rule, matched.by) {
            (_, By::Default(_)) => Verdict::Ask(question("no rule is about it".to_owned())),
            (Rule::Allow, _) => match self.unkept(matched) {
                Ok(()) => Verdict::Allow,
                Err(reason) => Verdict::AskAnyway(question(reason)),
            },
            (Rule::Ask | Rule::Block, _) => Verdict::Ask(question(matched.asks())),
        }
    }

    /// Why an operand asks each time, if one does.
    fn protected_operand(&self, words: &[Word], matched: &CommandMatch<'_>, operands: &Operands) -> Option<String> {
        let mut written = operands.all.iter().chain(&operands.placed);
        let operand = written.find(|operand| self.is_touched(&operand.target))?;
        if self.only_looks(words, matched) || self.is_kept_from_writing(matched) {
            return None;
        }
        Some(format!("`{}` decides what a project does", visible(&operands.shown(operand))))
    }

    /// Whether the command is known to do nothing but look, whatever it names.
    fn only_looks(&self, words: &[Word], matched: &CommandMatch<'_>) -> bool {
        if !READ_ONLY_COMMANDS.iter().any(|pattern| begins_with(words, pattern)) {
            return false;
        }
        let written = self.written(matched).unwrap_or_default();
        let fit = grammar::fit(words, &self.directory, &self.hidden_when_met(&written, matched.repositories()));
        fit.is_ok_and(|fit| fit.changes.is_empty() && fit.doubts.is_empty())
    }

    /// Whether the fence lets the command write nothing besides a private directory.
    fn is_kept_from_writing(&self, matched: &CommandMatch<'_>) -> bool {
        self.fence.is_there() && self.written(matched).is_ok_and(|written| written.is_empty())
    }

    /// Whether a command that names this may change something protected. The full fence keeps what lies deeper.
    fn is_touched(&self, target: &Target) -> bool {
        if self.fence.is_full() { self.protected.names(target) } else { self.protected.touched([target]).is_some() }
    }

    /// Why the operands ask whatever a rule allows, if they do.
    fn secret_operand(&self, words: &[Word], matched: &CommandMatch<'_>, operands: &Operands) -> Option<String> {
        if operands.are_too_many {
            return Some("it names more files than are looked at".to_owned());
        }
        // What is not there is not read, unless it is taken out of a history.
        let has_history = words[0].text.rsplit('/').next() == Some("git");
        let is_read = |operand: &operands::Operand| operand.identity.is_some() || has_history;
        let is_secret = |operand: &&operands::Operand| {
            (is_read(operand) && operand.looks_secret()) || self.protected.is_private(&operand.target)
        };
        if let Some(operand) = operands.all.iter().find(is_secret) {
            return Some(format!("`{}` looks like a secret", visible(&operands.shown(operand))));
        }
        let behind = &words[matched.length..];
        if let Some(list) = operands::list_of_files(&words[0].text, behind, &self.directory.path) {
            return Some(format!("`{}` is a list, and what it names is read", visible(&list)));
        }
        let directories = operands.all.iter().filter(|operand| operand.is_directory);
        let read = directories.filter_map(|operand| self.directory.overlap(&operand.target.path)).collect::<Vec<_>>();
        // The approver is not asked about a command that cannot be started.
        let written = self.written(matched).unwrap_or_default();
        let is_hidden = self.hidden_when_met(&written, matched.repositories());
        let is_read = |path: &Path| !is_hidden(path);
        read.iter().find_map(|start| grammar::doubt_about_secrets(&self.directory, start, &is_read))
    }

    /// Why a rule alone must not allow the program, or an option of it.
    fn danger(&self, words: &[Word], matched: &CommandMatch<'_>) -> Option<String> {
        if matched.rule.is_some_and(|rule| rule.i_understand) {
            return None;
        }
        let texts: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
        let by_file = || danger::by_file(&texts, &self.programs.find(&texts[0]).ok()?.file);
        let behind: Vec<&str> = texts.iter().skip(1).map(String::as_str).collect();
        let by_option = || danger::executing_options(&texts[0]).find(|option| options::is_given(option, &behind));
        let by_option = || by_option().map(|option| format!("`{option}` runs another program"));
        danger::by_name(&texts).or_else(by_file).or_else(by_option)
    }

    fn question(
        &self,
        words: &[Word],
        matched: &CommandMatch<'_>,
        changes: &[CommandPath],
        operands: &Operands,
        reason: String,
    ) -> Question {
        let command = quoted(words);
        let directory = self.directory.path.display().to_string();
        let program = match self.programs.find(&words[0].text) {
            Ok(program) => program.path.display().to_string(),
            Err(reason) => format!("(none: {reason})"),
        };
        let covered = if matched.pattern == "*" {
            "any command without a rule".to_owned()
        } else {
            format!("any command that begins with `{}`", matched.pattern)
        };
        let mut lines =
            vec![format!("command   {command}"), format!("program   {program}"), format!("directory {directory}")];
        let links = operands.links();
        lines.extend(links.iter().map(|link| format!("leads to  {link}")));
        lines.extend(
            changes.iter().map(|place| format!("changes   {}", self.directory.path.join(&place.beneath).display())),
        );
        let linked = self.linked_repository(matched);
        lines.extend(linked.iter().map(|path| format!("writes    {}", path.display())));
        lines.push(self.bounds_words(matched));
        let preview = lines.iter().map(|line| visible(line)).collect::<Vec<_>>().join("\n");
        let binding = operands.binding();
        let bound_to = digest(std::iter::once(reason.as_str()).chain(binding.iter().map(String::as_str)));
        let call = std::iter::once(format!("`{command}` in {directory}")).chain(links);
        Question {
            preview: Some(preview),
            bound_to: Some(bound_to),
            reason,
            covers: Some(Coverage {
                call: call.collect::<Vec<_>>().join(", "),
                tool: format!("{covered}, in {directory}"),
            }),
            shows: vec!["command".to_owned()],
            edits: Some("command".to_owned()),
            ..Question::default()
        }
    }

    fn bounds_words(&self, matched: &CommandMatch<'_>) -> String {
        match &self.fence.kind {
            FenceKind::Full { .. } => format!("fence     {}", fence_words(&matched.part.config)),
            FenceKind::Thin { .. } => format!("fence     thin: {}", fence_words(&matched.part.config)),
            FenceKind::None { why } => format!("fence     none: {why}"),
        }
    }

    async fn run(&self, call: &PermittedCall, events: &Events) -> Result<String, ToolError> {
        let arguments: ShellArguments = parse(call.arguments()).map_err(ToolError::Failed)?;
        let mut judged = self.judge_command(&arguments.command).map_err(ToolError::Failed)?;
        let own = std::mem::replace(&mut judged.verdict, Verdict::Allow);
        match &own.under(judged.matched.part.rule()) {
            Verdict::Block(reason) | Verdict::Fail(reason) => return Err(ToolError::failed(reason)),
            // What is there may have changed since it was judged: a link leads elsewhere, a file has become a secret, a
            // repository dangerous.
            verdict @ (Verdict::Ask(question) | Verdict::AskAnyway(question) | Verdict::AlwaysAsk(question)) => {
                let is_as_shown = call.bound_to().is_none_or(|shown| question.bound_to.as_deref() == Some(shown));
                let needs_exception = !matches!(verdict, Verdict::Ask(_));
                if !is_as_shown || (needs_exception && !call.is_exceptional()) {
                    return Err(ToolError::Changed);
                }
            }
            Verdict::Allow => {}
        }
        let timeout = Duration::from_secs(arguments.timeout.clamp(1, LONGEST.as_secs()));
        let program = match self.programs.find(&judged.words[0].text) {
            Ok(program) => program,
            Err(reason) => return Ok(rendered("", &reason, 127, false)),
        };
        if !program.is_unchanged() {
            let path = program.path.display().to_string();
            return Err(ToolError::failed(format!("`{}` is not what it was when the run began", visible(&path))));
        }
        let approved = if call.is_exceptional() { self.named_by(&judged) } else { Vec::new() };
        let launched = self.launch(&judged, &program, timeout, &approved);
        let (launch, found) = launched.map_err(ToolError::Failed)?;
        let finished = process::run(launch, &self.supervisors).await;
        let mut notes: Vec<String> = found.traces(&self.protected, &approved).iter().map(trace_words).collect();
        let has_failed = !matches!(&finished, Ok(ProcessResult { ended: ProcessEnd::Exited(0), .. }));
        notes.extend(has_failed.then(|| self.out_of_reach(&judged.matched)).flatten());
        for text in &notes {
            events.send(|| EventKind::Notice { text: format!("`{}`: {text}", quoted(&judged.words)) });
        }
        Ok(report(&finished.map_err(ToolError::Failed)?, timeout, &notes))
    }

    /// Why a rule for `git` finds no repository, if it cannot: `git` itself says only that there is none.
    fn out_of_reach(&self, matched: &CommandMatch<'_>) -> Option<String> {
        let is_concerned = matched.repositories() == Repositories::Written && self.fence.is_there();
        let git = is_concerned.then(|| repository::out_of_reach(&self.directory.path)).flatten()?;
        let shown = git.display().to_string();
        Some(format!("the repository of {} is not reached from here: start where it is", visible(&shown)))
    }

    /// What the approver has seen in the question and agreed to: files that are otherwise kept from commands.
    fn named_by(&self, judged: &CommandJudgement<'_>) -> Vec<PathBuf> {
        let operands = self.operands(&judged.words, &judged.matched);
        let is_kept = |target: &Target| self.is_touched(target) || super::secret::looks_secret(&target.path);
        operands.all.into_iter().map(|operand| operand.target).filter(is_kept).map(|target| target.path).collect()
    }

    fn description(&self) -> String {
        let text = include_str!("description.md");
        let is_grammar = self.parts.iter().all(|part| !matches!(part.config.grammar, Grammar::Rules { .. }));
        let paths = if is_grammar { include_str!("paths.md") } else { "" };
        let fence = if self.fence.is_there() { include_str!("fence.md") } else { "" };
        let filled = text
            .replace("{directory}", &visible(&self.directory.path.display().to_string()))
            .replace("{system}", std::env::consts::OS)
            .replace("{commands}", &visible(&self.command_names().join(", ")))
            .replace("{paths}", paths)
            .replace("{fence}", fence);
        filled.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl ShellPart {
    /// What all rules around its own say together.
    fn rule(&self) -> Option<Rule> {
        strictest(self.variants.iter().copied().map(Some).chain([self.worker]))
    }

    fn matched(&self, words: &[Word]) -> Option<CommandMatch<'_>> {
        let by_grammar = |patterns: &[&str]| {
            let pattern = patterns.iter().find(|pattern| begins_with(words, pattern))?;
            let length = pattern.split(' ').count();
            Some(CommandMatch { part: self, pattern: (*pattern).to_owned(), length, rule: None, by: By::Grammar })
        };
        match &self.config.grammar {
            Grammar::ReadOnly => by_grammar(&READ_ONLY_COMMANDS),
            Grammar::FileOps => by_grammar(FILE_COMMANDS),
            Grammar::Rules { rules, .. } => {
                let rule = rules::first_match(rules, words)?;
                let by = By::Rule(rules::verdict(rule, words));
                let (pattern, length) = (rule.pattern.join(" "), rule.pattern.len());
                Some(CommandMatch { part: self, pattern, length, rule: Some(rule), by })
            }
        }
    }
}

/// The commands of `shell_file_ops`.
const FILE_COMMANDS: &[&str] = &["ls", "mv"];

fn begins_with(words: &[Word], pattern: &str) -> bool {
    let mut words = words.iter().map(|word| word.text.as_str());
    pattern.split(' ').all(|expected| words.next() == Some(expected))
}

/// The command as a shell would have to be given it: one text for each list of words.
fn quoted(words: &[Word]) -> String {
    // Only a NUL cannot be quoted, and there is none in a word.
    shlex::try_join(words.iter().map(|word| word.text.as_str())).unwrap_or_default()
}

/// Where commands of these write besides the working directory: relative paths are those of the project.
fn written(parts: &[ShellPart], project_root: &Path) -> impl Iterator<Item = PathBuf> {
    parts.iter().flat_map(|part| &part.config.write).map(|path| project_root.join(path))
}

/// What the fence of a shell lets through, in words.
pub fn fence_words(config: &ShellConfig) -> String {
    let writes = match &config.grammar {
        Grammar::ReadOnly => "writes nothing".to_owned(),
        Grammar::FileOps => "`mv` writes beneath the working directory".to_owned(),
        Grammar::Rules { .. } => {
            let own = (config.directory == Access::ReadWrite).then(|| "the working directory".to_owned());
            let paths: Vec<String> = config.write.iter().map(|path| format!("`{}`", visible(path))).collect();
            let places: Vec<String> =
                own.into_iter().chain(Some(paths.join(", ")).filter(|paths| !paths.is_empty())).collect();
            if places.is_empty() {
                "writes nothing".to_owned()
            } else {
                format!("writes beneath {}", places.join(" and "))
            }
        }
    };
    format!("{writes}, {}", if config.network { "reaches the network" } else { "no network" })
}

fn trace_words(trace: &Trace) -> String {
    let shown = |path: &Path| visible(&path.display().to_string()).into_owned();
    match trace {
        Trace::Made(path) => format!("{} was made, which other programs run or follow: look at it", shown(path)),
        Trace::Removed(path) => format!("{} was removed again: no command may make it", shown(path)),
    }
}

fn report(finished: &ProcessResult, timeout: Duration, notes: &[String]) -> String {
    let stdout = String::from_utf8_lossy(&finished.stdout);
    let mut stderr = String::from_utf8_lossy(&finished.stderr).into_owned();
    let mut add = |line: String| {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(&line);
    };
    let exit_code = match finished.ended {
        ProcessEnd::Exited(code) => code,
        ProcessEnd::Killed(signal) => -signal,
        ProcessEnd::TimedOut => {
            add(format!("[ended after {} s; what it said until then is kept]", timeout.as_secs()));
            -1
        }
        ProcessEnd::SaidTooMuch => {
            add("[ended because its output is too long; ask for less, or for a part]".to_owned());
            -1
        }
    };
    for note in notes {
        add(format!("[{note}]"));
    }
    rendered(&stdout, &stderr, exit_code, finished.truncated)
}

/// As JSON it may be longer than results may be, since some characters become several: then it is cut, and says so.
fn rendered(stdout: &str, stderr: &str, exit_code: i32, truncated: bool) -> String {
    const LONGEST: usize = 58_000;
    let mut most = stdout.len();
    let mut truncated = truncated;
    loop {
        let end = (0..=most).rev().find(|end| stdout.is_char_boundary(*end)).unwrap_or(0);
        let json = RawJson::of(&CommandOutput { stdout: &stdout[..end], stderr, exit_code, truncated });
        if json.get().len() <= LONGEST || end == 0 {
            return json.get().to_owned();
        }
        (most, truncated) = (end / 2, true);
    }
}

impl Toolset for Shell {
    fn specs(&self) -> Vec<ToolSpec> {
        // Commands that write are meant in the order in which they come.
        let (order, repeat) =
            if self.only_reads() { (Order::Concurrent, Repeat::Repeatable) } else { (Order::Sequential, Repeat::Once) };
        vec![ToolSpec {
            name: self.tool.clone(),
            description: self.description(),
            parameters: RawJson::of(&schemars::schema_for!(ShellArguments)),
            kind: ToolKind::Leaf,
            order,
            repeat,
        }]
    }

    fn judge<'a>(
        &'a self,
        _: &'a str,
        arguments: &'a RawJson,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        // A command that is none here is a mistake of the model, which reads the reason and may do better; a command
        // that a rule blocks is a refusal.
        Box::pin(async move {
            let arguments: ShellArguments = parse(arguments)?;
            self.judge_command(&arguments.command).map(|judged| judged.judgement(cx.wants_subject()))
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move {
            let output = self.run(&call, cx.events).await?;
            Ok(vec![Content::text(output)])
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { self.private.remove() })
    }
}

impl Shell {
    fn only_reads(&self) -> bool {
        self.parts.iter().all(|part| matches!(part.config.grammar, Grammar::ReadOnly))
    }
}
