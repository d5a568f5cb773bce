//! What a project asks of the user who runs it, as the command line hears of it: flags, the variable, and the
//! terminal.

pub mod screen;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use llm_do::BoxFuture;
use llm_do::toolsets::McpServer;
use llm_do::trust::{SurveyedProject, TrustDigest, TrustItem};
use llm_do_launch::error::{LaunchError, TrustList, UntrustedReason};
use llm_do_launch::launch::{SurveyedLaunch, TrustedLaunch};
use llm_do_launch::state::StateDirectory;
use llm_do_launch::trust::{self, Consent, TrustAnswers, TrustChoice, TrustPrompt, WrittenOver};

use crate::args::NOW;
use crate::console;
use crate::environment::DIGEST_FORM;
use crate::executor::executor;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::attention::QuestionStage;
use crate::terminal::{KeyPress, KeySign, Terminal, TerminalKeys, TerminalSize};
use screen::List;

/// Who answers whether a project is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Answerers {
    /// What `--trust` agrees to. It is kept for later runs.
    pub flag: Option<Consent>,
    /// What `LLM_DO_TRUST` or a program agrees to, for this process alone.
    pub once: Option<Consent>,
    /// Whether a person at a terminal can be asked.
    pub person: bool,
}

/// As `--trust` was typed: with a digest behind it, or without.
pub fn typed(flag: Option<&str>) -> Result<Option<Consent>, Failure> {
    match flag {
        None => Ok(None),
        Some(NOW) => Ok(Some(Consent::Everything)),
        Some(text) => match TrustDigest::parse(text) {
            Some(digest) => Ok(Some(Consent::List(digest))),
            None => Err(Failure::usage("`--trust=…` is no digest").hint(DIGEST_FORM)),
        },
    }
}

impl Answerers {
    /// The same answers for a command that only looks at a project and does not ask.
    pub fn without_prompt(&self) -> TrustAnswers<'static> {
        TrustAnswers { kept: self.flag.clone(), once: self.once.clone(), prompt: None }
    }
}

/// The project, once an answerer has agreed to it, or why it cannot be run.
pub async fn settle(surveyed: SurveyedLaunch, answerers: &Answerers) -> Result<TrustedLaunch, Failure> {
    let project = surveyed.launch.project.clone();
    let prompt = TerminalPrompt { project: &project, failure: Mutex::default() };
    let answers =
        TrustAnswers { prompt: answerers.person.then_some(&prompt as &dyn TrustPrompt), ..answerers.without_prompt() };
    let settled = surveyed.trust(&answers, tell_settlement).await;
    let failure = prompt.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    match (settled, failure) {
        (_, Some(failure)) => Err(failure),
        (Ok(trusted), None) => Ok(trusted),
        (Err(error), None) => {
            let LaunchError::Untrusted(untrusted) = error else { return Err(error.into()) };
            if untrusted.why != UntrustedReason::Refused {
                console::complain(&List::of(&project, &untrusted.list).whole());
            }
            let fact = match untrusted.why {
                UntrustedReason::Unattended | UntrustedReason::Refused => "the project is not trusted",
                UntrustedReason::OtherList => "`--trust=…` is for another list than this one",
            };
            let digest = &untrusted.list.digest;
            let hint = format!("`--trust={digest}` trusts exactly this, `--trust` what it is now");
            Err(Failure::refused(fact).hint(hint))
        }
    }
}

fn tell_settlement(news: &[TrustItem], unkept: Option<String>) {
    if !news.is_empty() {
        let lines: Vec<String> = screen::lines(news).into_iter().map(|line| format!("{line}\n")).collect();
        console::complain(&format!("note: new in this place, which you trust:\n{}", lines.concat()));
    }
    tell_unkept(unkept);
}

/// Trusts what was just written for the user.
pub fn keep_written(over: &WrittenOver, surveyed: &SurveyedProject, state: &StateDirectory) -> Result<(), Failure> {
    tell_unkept(trust::keep_written(over, surveyed, state)?);
    Ok(())
}

fn tell_unkept(unkept: Option<String>) {
    if let Some(error) = unkept {
        console::complain(&format!("note: trust cannot be kept, it will be asked for again: {error}\n"));
    }
}

/// The person at the terminal.
struct TerminalPrompt<'p> {
    project: &'p Path,
    /// Why there is no answer: a signal, or no terminal.
    failure: Mutex<Option<Failure>>,
}

impl TrustPrompt for TerminalPrompt<'_> {
    fn ask<'a>(&'a self, list: &'a TrustList) -> BoxFuture<'a, Result<TrustChoice, LaunchError>> {
        // A thread with an executor of its own asks: nothing else goes on before there is an answer, and the code
        // that reads keys stays where it is.
        let asked = std::thread::scope(|scope| {
            let ask = || executor()?.block_on(ask_about(&List::of(self.project, list), list.offers_place));
            scope.spawn(ask).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let answer = asked.unwrap_or_else(|failure| {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            TrustChoice::No
        });
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// How a server is reached: its command, or its address.
pub fn reached(server: &McpServer) -> String {
    match server {
        McpServer::Command { command, args, .. } => {
            let words: Vec<&str> = std::iter::once(command).chain(args).map(String::as_str).collect();
            words.join(" ")
        }
        McpServer::Url { url, .. } => url.clone(),
    }
}

const WITH_PLACE: &str = "y trust exactly this   p trust this place, whatever it will contain   n no";
const WITHOUT_PLACE: &str = "y trust exactly this   n no";

async fn ask_about(list: &List<'_>, offers_place: bool) -> Result<TrustChoice, Failure> {
    let mut signals = Signals::listen()?;
    let terminal = Terminal::open().map_err(unreadable)?;
    let keys = terminal.keys().map_err(unreadable)?;
    let mut asking = TrustDialog { keys, shown: (String::new(), QuestionStage::Page), signals: &mut signals };
    let choices = if offers_place { WITH_PLACE } else { WITHOUT_PLACE };
    let TerminalSize { rows, columns } = terminal.size();
    for page in list.pages(rows, columns, choices) {
        asking.show(&page.text, if page.is_last { QuestionStage::Answer } else { QuestionStage::Page }).await?;
        if !page.is_last && !asking.wants_more().await? {
            return Ok(TrustChoice::No);
        }
    }
    asking.answer(offers_place).await
}

/// Shows a text page by page and asks a question below it: the key that was pressed, one of these. Whoever leaves before says
/// no, which is `n`.
pub fn choose(text: &str, question: &str, keys: &'static [u8]) -> Result<u8, Failure> {
    executor()?.block_on(async {
        let mut signals = Signals::listen()?;
        let terminal = Terminal::open().map_err(unreadable)?;
        let rows = terminal.size().rows.saturating_sub(3).max(4);
        let pressed = terminal.keys().map_err(unreadable)?;
        let mut asking =
            TrustDialog { keys: pressed, shown: (String::new(), QuestionStage::Page), signals: &mut signals };
        let lines: Vec<&str> = text.lines().collect();
        let mut pages = lines.chunks(rows).peekable();
        while let Some(page) = pages.next() {
            let page = page.iter().flat_map(|line| [line, "\n"]).collect::<String>();
            if pages.peek().is_none() {
                asking.show(&page, QuestionStage::Page).await?;
            } else {
                asking.show(&format!("{page}  space goes on   n no\n"), QuestionStage::Page).await?;
                if !asking.wants_more().await? {
                    return Ok(b'n');
                }
            }
        }
        asking.show(question, QuestionStage::Answer).await?;
        loop {
            match asking.key().await? {
                b'q' => return Ok(b'n'),
                key if keys.contains(&key) => return Ok(key),
                _ => console::complain("\u{7}"),
            }
        }
    })
}

/// The same for another question, before the run and its executor: yes or no.
pub fn ask(question: &str) -> Result<bool, Failure> {
    executor()?.block_on(async { ask_during(question, &mut Signals::listen()?).await })
}

/// The same during a run, which hears of signals already.
pub async fn ask_during(question: &str, signals: &mut Signals) -> Result<bool, Failure> {
    let terminal = Terminal::open().map_err(unreadable)?;
    let keys = terminal.keys().map_err(unreadable)?;
    let mut asking = TrustDialog { keys, shown: (String::new(), QuestionStage::Page), signals };
    asking.show(question, QuestionStage::Answer).await?;
    Ok(asking.answer(false).await? == TrustChoice::Exactly)
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives it away")]
fn unreadable(error: std::io::Error) -> Failure {
    Failure::failed(format!("the terminal cannot be read: {error}"))
}

struct TrustDialog<'a> {
    keys: TerminalKeys<'a>,
    /// What stands there now.
    shown: (String, QuestionStage),
    signals: &'a mut Signals,
}

impl TrustDialog<'_> {
    async fn show(&mut self, text: &str, stage: QuestionStage) -> Result<(), Failure> {
        self.shown = (text.to_owned(), stage);
        let sign = match stage {
            QuestionStage::Answer => KeySign::of("\r? "),
            QuestionStage::Page => KeySign::of("\r ? "),
        };
        tokio::select! {
            () = self.keys.show(text, stage, sign) => Ok(()),
            signal = self.signals.next() => Err(signal.stops().failure()),
        }
    }

    async fn key(&mut self) -> Result<u8, Failure> {
        loop {
            let pressed = tokio::select! {
                key = self.keys.next() => key.map_err(unreadable)?,
                signal = self.signals.next() => return Err(signal.stops().failure()),
            };
            match pressed {
                KeyPress::Key(key) => {
                    self.keys.hide_sign();
                    return Ok(key.to_ascii_lowercase());
                }
                // What stood there is gone.
                KeyPress::Returned => {
                    let (text, stage) = self.shown.clone();
                    self.show(&text, stage).await?;
                }
            }
        }
    }

    /// Below a page that is not the last: there is nothing to agree to yet.
    async fn wants_more(&mut self) -> Result<bool, Failure> {
        loop {
            match self.key().await? {
                b' ' | b'\r' | b'\n' => return Ok(true),
                b'n' | b'q' | b'd' => return Ok(false),
                _ => console::complain("\u{7}"),
            }
        }
    }

    async fn answer(&mut self, offers_place: bool) -> Result<TrustChoice, Failure> {
        let mut pressed = false;
        loop {
            match self.key().await? {
                b'y' => return Ok(TrustChoice::Exactly),
                b'n' | b'q' | b'd' => return Ok(TrustChoice::No),
                b'p' if offers_place && pressed => return Ok(TrustChoice::Place),
                b'p' if offers_place => {
                    pressed = true;
                    let warning = "p again: whatever this place will contain runs without a question\n";
                    self.show(warning, QuestionStage::Answer).await?;
                }
                _ => {
                    pressed = false;
                    console::complain("\u{7}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
