//! What a project asks of whoever runs it: shown once, agreed to by a person or a flag, and remembered outside the project.
//! Nobody there to agree: nothing of it runs.

pub mod screen;
mod store;

use std::path::Path;

use llm_do::project::trust::{Agreement, SurveyedProject, TrustDigest, TrustItem, TrustedProject, items};
use llm_do::tools::source::McpServer;

use crate::args::NOW;
use crate::attention::Stage;
use crate::console;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::run;
use crate::signals::Signals;
use crate::state::State;
use crate::terminal::{Keys, Size, Terminal};
use screen::List;
use store::{Kept, Store, is_private};

/// What was agreed to without a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consent {
    /// Whatever it is now.
    Everything,
    /// Exactly the list with this digest.
    List(TrustDigest),
}

/// Who answers whether a project is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Answerers {
    /// `--trust`: kept.
    pub flag: Option<Consent>,
    /// `LLM_DO_TRUST`, or a program: for this process alone.
    pub once: Option<Consent>,
    /// Somebody at a terminal.
    pub person: bool,
}

const VARIABLE: &str = "LLM_DO_TRUST";
const DIGITS: &str = "a digest of a trust list has 32 hex digits";

impl Consent {
    /// As `--trust` was typed: with a digest behind it, or without.
    pub fn typed(flag: Option<&str>) -> Result<Option<Self>, Failure> {
        match flag {
            None => Ok(None),
            Some(NOW) => Ok(Some(Self::Everything)),
            Some(text) => match TrustDigest::parse(text) {
                Some(digest) => Ok(Some(Self::List(digest))),
                None => Err(Failure::usage("`--trust=…` is no digest").hint(DIGITS)),
            },
        }
    }

    /// As the environment says.
    pub fn of_variable(environment: &Environment) -> Result<Option<Self>, Failure> {
        match environment.get(VARIABLE) {
            None => Ok(None),
            Some("1") => Ok(Some(Self::Everything)),
            Some(text) => match TrustDigest::parse(text) {
                Some(digest) => Ok(Some(Self::List(digest))),
                None => Err(Failure::usage(format!("{VARIABLE} is neither `1` nor a digest")).hint(DIGITS)),
            },
        }
    }

    fn agreement(&self) -> Agreement<'_> {
        match self {
            Self::Everything => Agreement::Everything,
            Self::List(digest) => Agreement::List(digest),
        }
    }
}

/// What a project asks for, and what of it nobody has agreed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub items: Vec<TrustItem>,
    pub digest: TrustDigest,
    pub is_given: bool,
}

/// How it stands with a project, without asking anybody.
pub fn standing(surveyed: &SurveyedProject, answerers: &Answerers, state: &State) -> Result<Standing, Failure> {
    let items = items(surveyed);
    let digest = TrustDigest::of_list(&items);
    let agrees = |consent: &Option<Consent>| match consent {
        None => false,
        Some(Consent::Everything) => true,
        Some(Consent::List(list)) => *list == digest,
    };
    let is_given = items.is_empty() || agrees(&answerers.flag) || agrees(&answerers.once) || {
        let root = &surveyed.project().root;
        let kept = Store::of(state).kept(root)?;
        (kept.is_place && is_private(root)) || items.iter().all(|item| kept.items.contains(&item.digest))
    };
    Ok(Standing { items, digest, is_given })
}

/// A project that somebody agreed to, or why it is none. `shown` is how its user calls it.
pub fn settle(
    surveyed: SurveyedProject,
    shown: &Path,
    answerers: &Answerers,
    state: &State,
) -> Result<TrustedProject, Failure> {
    let asked = items(&surveyed);
    if asked.is_empty() {
        return agreed(surveyed, Agreement::Everything);
    }
    let digest = TrustDigest::of_list(&asked);
    let store = Store::of(state);
    let root = surveyed.project().root.clone();
    let kept = store.kept(&root)?;
    let new: Vec<TrustItem> = asked.iter().filter(|item| !kept.items.contains(&item.digest)).cloned().collect();
    let list = List { project: shown, items: &new, is_rest: !kept.items.is_empty(), digest: digest.clone() };
    match &answerers.flag {
        Some(Consent::List(typed)) if *typed != digest => {
            let whole = List { items: &asked, is_rest: false, ..list };
            console::complain(&whole.whole());
            return Err(Failure::refused("`--trust=…` is for another list than this one").hint(hint(&digest)));
        }
        Some(consent) => {
            keep(&store, &root, &kept, &asked, false);
            return agreed(surveyed, consent.agreement());
        }
        None => {}
    }
    if new.is_empty() {
        return agreed(surveyed, Agreement::Items(&kept.items));
    }
    if let Some(Consent::Everything) = answerers.once {
        return agreed(surveyed, Agreement::Everything);
    }
    if answerers.once == Some(Consent::List(digest.clone())) {
        return agreed(surveyed, Agreement::List(&digest));
    }
    if kept.is_place && is_private(&root) {
        let lines: Vec<String> = screen::lines(&new).into_iter().map(|line| format!("{line}\n")).collect();
        console::complain(&format!("note: new in this place, which you trust:\n{}", lines.concat()));
        keep(&store, &root, &kept, &asked, false);
        return agreed(surveyed, Agreement::Everything);
    }
    if !answerers.person {
        console::complain(&list.whole());
        return Err(untrusted().hint(hint(&digest)));
    }
    match ask_about(&list, is_private(&root))? {
        Answer::No => Err(untrusted().hint(hint(&digest))),
        answer => {
            keep(&store, &root, &kept, &asked, answer == Answer::Place);
            agreed(surveyed, Agreement::List(&digest))
        }
    }
}

/// Trusts a project for whoever has just written all of it.
pub fn keep_written(surveyed: &SurveyedProject, state: &State) -> Result<(), Failure> {
    let asked = items(surveyed);
    if !asked.is_empty() {
        let (store, root) = (Store::of(state), &surveyed.project().root);
        keep(&store, root, &store.kept(root)?, &asked, false);
    }
    Ok(())
}

fn agreed(surveyed: SurveyedProject, agreement: Agreement<'_>) -> Result<TrustedProject, Failure> {
    surveyed.trusted(agreement).map_err(|_| untrusted())
}

pub fn untrusted() -> Failure {
    Failure::refused("the project is not trusted")
}

fn hint(digest: &TrustDigest) -> String {
    format!("`--trust={digest}` trusts exactly this, `--trust` what it is now")
}

/// Whoever agreed wants it to run now, whatever becomes of the next time.
fn keep(store: &Store<'_>, root: &Path, kept: &Kept, items: &[TrustItem], is_place: bool) {
    let is_kept = items.iter().all(|item| kept.items.contains(&item.digest)) && (kept.is_place || !is_place);
    if is_kept {
        return;
    }
    if let Err(error) = store.keep(root, kept, items, is_place) {
        console::complain(&format!("note: trust cannot be kept, it will be asked for again: {error}\n"));
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Exactly,
    Place,
    No,
}

const WITH_PLACE: &str = "y trust exactly this   p trust this place, whatever it will contain   n no";
const WITHOUT_PLACE: &str = "y trust exactly this   n no";

/// Before the run and its executor.
fn ask_about(list: &List<'_>, offers_place: bool) -> Result<Answer, Failure> {
    attended(async |terminal, asking| {
        let choices = if offers_place { WITH_PLACE } else { WITHOUT_PLACE };
        let Size { rows, columns } = terminal.size();
        for page in list.pages(rows, columns, choices) {
            asking.show(&page.text, if page.is_last { Stage::Answer } else { Stage::Page }).await?;
            if !page.is_last && !asking.wants_more().await? {
                return Ok(Answer::No);
            }
        }
        asking.answer(offers_place).await
    })
}

/// The same for another question: yes or no.
pub fn ask(question: &str) -> Result<bool, Failure> {
    attended(async |_, asking| {
        asking.show(question, Stage::Answer).await?;
        Ok(asking.answer(false).await? == Answer::Exactly)
    })
}

fn attended<T>(question: impl AsyncFnOnce(&Terminal, &mut Questions<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
    run::executor()?.block_on(async {
        let mut signals = Signals::listen()?;
        let terminal = Terminal::open().map_err(unreadable)?;
        let keys = terminal.keys().map_err(unreadable)?;
        question(&terminal, &mut Questions { keys, signals: &mut signals }).await
    })
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives it away")]
fn unreadable(error: std::io::Error) -> Failure {
    Failure::failed(format!("the terminal cannot be read: {error}"))
}

struct Questions<'a> {
    keys: Keys<'a>,
    signals: &'a mut Signals,
}

impl Questions<'_> {
    async fn show(&mut self, text: &str, stage: Stage) -> Result<(), Failure> {
        tokio::select! {
            () = self.keys.show(text, stage) => Ok(()),
            signal = self.signals.next() => Err(signal.stops().failure()),
        }
    }

    async fn key(&mut self) -> Result<u8, Failure> {
        tokio::select! {
            key = self.keys.next() => Ok(key.map_err(unreadable)?.to_ascii_lowercase()),
            signal = self.signals.next() => Err(signal.stops().failure()),
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

    async fn answer(&mut self, offers_place: bool) -> Result<Answer, Failure> {
        let mut pressed = false;
        loop {
            match self.key().await? {
                b'y' => return Ok(Answer::Exactly),
                b'n' | b'q' | b'd' => return Ok(Answer::No),
                b'p' if offers_place && pressed => return Ok(Answer::Place),
                b'p' if offers_place => {
                    pressed = true;
                    let warning = "p again: whatever this place will contain runs without a question\n";
                    self.show(warning, Stage::Answer).await?;
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
