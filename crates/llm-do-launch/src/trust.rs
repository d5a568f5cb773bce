//! What a project asks of the user who runs it: agreed to by a person, a flag or a program, and remembered outside the project.
//! Without consent nothing of it runs.

mod store;

use std::path::Path;

use llm_do::BoxFuture;
use llm_do::trust::{Agreement, SurveyedProject, TrustDigest, TrustItem, TrustedProject, items};

use crate::error::{LaunchError, TrustList, UntrustedProject, UntrustedReason};
use crate::state::StateDirectory;
use store::{KeptTrust, Store};

pub use store::is_private;

/// What was agreed to without a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consent {
    /// Whatever it is now.
    Everything,
    /// Exactly the list with this digest.
    List(TrustDigest),
}

impl Consent {
    fn agreement(&self) -> Agreement<'_> {
        match self {
            Self::Everything => Agreement::Everything,
            Self::List(digest) => Agreement::List(digest),
        }
    }
}

/// Who answers whether a project is trusted. Without any, it fails closed.
#[derive(Clone, Default)]
pub struct TrustAnswers<'a> {
    /// Is kept.
    pub kept: Option<Consent>,
    /// For this process alone.
    pub once: Option<Consent>,
    /// A person who can be asked.
    pub prompt: Option<&'a (dyn TrustPrompt + 'a)>,
}

/// A front end that can ask a person whether a project is trusted.
pub trait TrustPrompt: Send + Sync {
    /// An error is why there was no answer.
    fn ask<'a>(&'a self, list: &'a TrustList) -> BoxFuture<'a, Result<TrustChoice, LaunchError>>;
}

/// What the person answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustChoice {
    /// Exactly what was shown.
    Exactly,
    /// The place, whatever it will contain.
    Place,
    No,
}

/// What a project asks for, and whether the user has agreed to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub items: Vec<TrustItem>,
    pub digest: TrustDigest,
    pub is_given: bool,
}

/// How it stands with a project, without asking.
pub fn standing(
    surveyed: &SurveyedProject,
    answers: &TrustAnswers<'_>,
    state: &StateDirectory,
) -> Result<Standing, LaunchError> {
    let items = items(surveyed);
    let digest = TrustDigest::of_list(&items);
    let agrees = |consent: &Option<Consent>| match consent {
        None => false,
        Some(Consent::Everything) => true,
        Some(Consent::List(list)) => *list == digest,
    };
    let is_given = items.is_empty() || agrees(&answers.kept) || agrees(&answers.once) || {
        let root = &surveyed.project().root;
        let kept = Store::of(state).kept(root)?;
        (kept.is_place && is_private(root)) || items.iter().all(|item| kept.items.contains(&item.digest))
    };
    Ok(Standing { items, digest, is_given })
}

/// A project that the user agreed to, and what there is to say about that.
pub struct Settlement {
    pub trusted: TrustedProject,
    /// What is new in a place that is trusted, whatever it contains.
    pub news: Vec<TrustItem>,
    /// Why it will be asked for again.
    pub unkept: Option<String>,
}

/// Asks for trust as far as it is not given yet.
pub async fn settle(
    surveyed: SurveyedProject,
    answers: &TrustAnswers<'_>,
    state: &StateDirectory,
) -> Result<Settlement, LaunchError> {
    let asked = items(&surveyed);
    if asked.is_empty() {
        return agreed(surveyed, Agreement::Everything, Vec::new(), None);
    }
    let digest = TrustDigest::of_list(&asked);
    let store = Store::of(state);
    let root = surveyed.project().root.clone();
    let kept = store.kept(&root)?;
    let untrusted = |items: Vec<TrustItem>, is_rest: bool, why: UntrustedReason| {
        let list = TrustList { items, is_rest, digest: digest.clone(), offers_place: is_private(&root) };
        LaunchError::Untrusted(Box::new(UntrustedProject { list, why }))
    };
    match &answers.kept {
        Some(Consent::List(typed)) if *typed != digest => {
            return Err(untrusted(asked, false, UntrustedReason::OtherList));
        }
        Some(consent) => {
            let unkept = keep(&store, &root, &kept, &asked, false);
            return agreed(surveyed, consent.agreement(), Vec::new(), unkept);
        }
        None => {}
    }
    let new: Vec<TrustItem> = asked.iter().filter(|item| !kept.items.contains(&item.digest)).cloned().collect();
    if new.is_empty() {
        return agreed(surveyed, Agreement::Items(&kept.items), Vec::new(), None);
    }
    match &answers.once {
        Some(Consent::Everything) => return agreed(surveyed, Agreement::Everything, Vec::new(), None),
        Some(Consent::List(list)) if *list == digest => {
            return agreed(surveyed, Agreement::List(&digest), Vec::new(), None);
        }
        Some(Consent::List(_)) | None => {}
    }
    if kept.is_place && is_private(&root) {
        let unkept = keep(&store, &root, &kept, &asked, false);
        return agreed(surveyed, Agreement::Everything, new, unkept);
    }
    let is_rest = !kept.items.is_empty();
    let Some(prompt) = answers.prompt else {
        return Err(untrusted(new, is_rest, UntrustedReason::Unattended));
    };
    let list = TrustList { items: new, is_rest, digest: digest.clone(), offers_place: is_private(&root) };
    match prompt.ask(&list).await? {
        TrustChoice::No => Err(untrusted(list.items, is_rest, UntrustedReason::Refused)),
        choice @ (TrustChoice::Exactly | TrustChoice::Place) => {
            let unkept = keep(&store, &root, &kept, &asked, choice == TrustChoice::Place);
            agreed(surveyed, Agreement::List(&digest), Vec::new(), unkept)
        }
    }
}

/// What was there before a command wrote into a project for its user.
#[derive(Clone, Debug)]
pub enum WrittenOver {
    /// Nothing: all of it was just written.
    Nothing,
    /// A project, and how it stood with it.
    Project(Standing),
}

impl WrittenOver {
    /// What is there now. Only what is kept counts: what was agreed to for one process says nothing of what is written.
    pub fn project(surveyed: &SurveyedProject, state: &StateDirectory) -> Result<Self, LaunchError> {
        standing(surveyed, &TrustAnswers::default(), state).map(Self::Project)
    }
}

/// Trusts what a command has just written for its user, and nothing else: if what was there before was not trusted, it still is
/// not. An answer is why that cannot be kept.
pub fn keep_written(
    over: &WrittenOver,
    surveyed: &SurveyedProject,
    state: &StateDirectory,
) -> Result<Option<String>, LaunchError> {
    let asked = items(surveyed);
    let is_ours = match over {
        WrittenOver::Nothing => true,
        WrittenOver::Project(before) => before.is_given,
    };
    if asked.is_empty() || !is_ours {
        return Ok(None);
    }
    let (store, root) = (Store::of(state), &surveyed.project().root);
    Ok(keep(&store, root, &store.kept(root)?, &asked, false))
}

fn agreed(
    surveyed: SurveyedProject,
    agreement: Agreement<'_>,
    news: Vec<TrustItem>,
    unkept: Option<String>,
) -> Result<Settlement, LaunchError> {
    match surveyed.trusted(agreement) {
        Ok(trusted) => Ok(Settlement { trusted, news, unkept }),
        Err(_) => Err(LaunchError::refused("the project is not trusted")),
    }
}

/// A user who agreed wants it to run now, whatever becomes of the next time: an answer is why it will be asked for again.
fn keep(store: &Store<'_>, root: &Path, kept: &KeptTrust, items: &[TrustItem], is_place: bool) -> Option<String> {
    let is_kept = items.iter().all(|item| kept.items.contains(&item.digest)) && (kept.is_place || !is_place);
    if is_kept { None } else { store.keep(root, kept, items, is_place).err() }
}

#[cfg(test)]
mod tests;
