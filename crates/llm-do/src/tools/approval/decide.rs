//! How every call is decided, in three steps. Pure: what runs, what `policy` explains and what is tried on recorded calls
//! are decided here and nowhere else.
//!
//! 1. *Floor.* What a toolset blocks, or could not judge, stays so. What always asks always asks.
//! 2. *Verdict.* The strictest of the rules that speak of the call; if none does, the toolset's own verdict.
//! 3. *Answer.* If the verdict is to ask, the first that has an answer gives it: every question is refused in this run; a person
//!    has answered exactly this question; a lasting `allow` of the user; an answer for the session; every question is
//!    approved in this run; a person who is asked now. Where the organisation asks, a person must answer: the lasting
//!    `allow`, the session and the approval of everything do not count. What always asks is not answered by a lasting
//!    `allow`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ApprovalMode, Rule, VerdictKind, Voices};

/// Who had the last word about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// The toolset: no rule was about the call, or none could change it.
    Toolset,
    /// A definition that chooses some tools of a toolset.
    Variant,
    /// A rule of the agent.
    Worker,
    /// A rule of the project's manifest.
    Manifest,
    /// The user's own rule that asks or blocks.
    Yours,
    /// A rule of the organisation.
    Organisation,
    /// Every question was answered with no.
    RejectAll,
    /// A person's answer that was known before the question was asked.
    Known,
    /// The user's own lasting `allow`.
    Rule,
    /// An earlier answer for the rest of the session.
    Session,
    /// Every question was answered with yes.
    ApproveAll,
    /// A person who was asked.
    Person,
    /// It had to be asked, and nobody was there.
    Nobody,
}

impl DecidedBy {
    /// As the words of a refusal and of a question name it.
    pub(super) fn whose_rule(self) -> &'static str {
        match self {
            Self::Variant | Self::Worker => "a rule of the agent",
            Self::Manifest => "a rule of the project",
            Self::Yours | Self::Rule => "a rule of the user",
            Self::Organisation => "a rule of the organisation",
            Self::Toolset => "the toolset",
            Self::RejectAll | Self::Known | Self::Session | Self::ApproveAll | Self::Person | Self::Nobody => {
                "an answer"
            }
        }
    }
}

/// Which step of judging decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgingStep {
    /// The toolset's own, which no rule lifts.
    Floor,
    /// The rules, or the toolset where none speaks.
    Verdict,
    /// Whoever answered.
    Answer,
}

/// What is known of a call when it is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// The toolset's own verdict.
    pub own: VerdictKind,
    pub voices: &'a Voices,
    pub mode: ApprovalMode,
    /// A person has answered exactly this question before.
    pub is_known: bool,
    /// An answer for the session covers the call.
    pub is_remembered: bool,
    pub has_approver: bool,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutlook {
    /// It runs.
    Run,
    /// Somebody has to answer first: a known answer, a person, or nobody yet.
    Ask,
    /// It is refused.
    Block,
    /// It fails, since it could not be judged.
    Fail,
}

/// How a call is decided: what becomes of it, in which step, by whom, and by which lasting rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolution<'a> {
    pub outlook: CallOutlook,
    pub step: JudgingStep,
    pub by: DecidedBy,
    pub place: Option<&'a Arc<str>>,
}

/// The verdict of the first two steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuledVerdict<'a> {
    pub kind: VerdictKind,
    pub step: JudgingStep,
    pub by: DecidedBy,
    pub place: Option<&'a Arc<str>>,
}

impl Voices {
    /// Every rule that speaks, nearest to the call first.
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = (Rule, DecidedBy, Option<&Arc<str>>)> {
        let bare = [(self.worker, DecidedBy::Worker), (self.variant, DecidedBy::Variant)];
        let placed = [
            (&self.manifest, DecidedBy::Manifest),
            (&self.yours, DecidedBy::Yours),
            (&self.organisation, DecidedBy::Organisation),
        ];
        let bare = bare.into_iter().filter_map(|(rule, by)| Some((rule?, by, None)));
        let placed =
            placed.into_iter().filter_map(|(rule, by)| rule.as_ref().map(|rule| (rule.rule, by, Some(&rule.place))));
        bare.chain(placed)
    }

    /// Whether the organisation wants a person to answer, or only a person can.
    pub(crate) fn needs_person(&self) -> bool {
        self.person_only || self.organisation.as_ref().is_some_and(|rule| rule.rule == Rule::Ask)
    }
}

/// The first two steps: the floor and the rules.
pub(crate) fn verdict(own: VerdictKind, voices: &Voices) -> RuledVerdict<'_> {
    // Of several that are as strict, the nearest to the call is named.
    let strictest = voices.verdicts().fold(None, |strictest: Option<(Rule, _, _)>, voice| match strictest {
        Some(found) if found.0 >= voice.0 => Some(found),
        _ => Some(voice),
    });
    let of_toolset = |step| RuledVerdict { kind: own, step, by: DecidedBy::Toolset, place: None };
    let of_rule = |kind, by, place| RuledVerdict { kind, step: JudgingStep::Verdict, by, place };
    match (own, strictest) {
        (VerdictKind::Block, _) => of_toolset(JudgingStep::Floor),
        (_, Some((Rule::Block, by, place))) => of_rule(VerdictKind::Block, by, place),
        (VerdictKind::AskAnyway | VerdictKind::AlwaysAsk | VerdictKind::Fail, _) => of_toolset(JudgingStep::Floor),
        (VerdictKind::Allow | VerdictKind::Ask, None) => of_toolset(JudgingStep::Verdict),
        (VerdictKind::Allow | VerdictKind::Ask, Some((Rule::Allow, by, place))) => {
            of_rule(VerdictKind::Allow, by, place)
        }
        (VerdictKind::Allow | VerdictKind::Ask, Some((Rule::Ask, by, place))) => of_rule(VerdictKind::Ask, by, place),
    }
}

/// All three steps.
pub(crate) fn decide(facts: Facts<'_>) -> Resolution<'_> {
    let RuledVerdict { kind, step, by, place } = verdict(facts.own, facts.voices);
    let without_question = |outlook| Resolution { outlook, step, by, place };
    match kind {
        VerdictKind::Allow => without_question(CallOutlook::Run),
        VerdictKind::Block => without_question(CallOutlook::Block),
        VerdictKind::Fail => without_question(CallOutlook::Fail),
        VerdictKind::Ask | VerdictKind::AskAnyway | VerdictKind::AlwaysAsk => answer(kind, facts),
    }
}

/// The third step.
fn answer(kind: VerdictKind, facts: Facts<'_>) -> Resolution<'_> {
    let Facts { voices, mode, is_known, is_remembered, has_approver, .. } = facts;
    let anyone = !voices.needs_person();
    let allowance = voices.allowance.as_ref().filter(|_| anyone && kind == VerdictKind::Ask);
    let (outlook, by) = match mode {
        ApprovalMode::RejectAll => (CallOutlook::Block, DecidedBy::RejectAll),
        _ if is_known => (CallOutlook::Ask, DecidedBy::Known),
        _ if allowance.is_some() => (CallOutlook::Run, DecidedBy::Rule),
        _ if anyone && is_remembered => (CallOutlook::Run, DecidedBy::Session),
        ApprovalMode::ApproveAll if anyone => (CallOutlook::Run, DecidedBy::ApproveAll),
        _ if has_approver => (CallOutlook::Ask, DecidedBy::Person),
        ApprovalMode::Prompt | ApprovalMode::ApproveAll => (CallOutlook::Ask, DecidedBy::Nobody),
    };
    let place = allowance.filter(|_| by == DecidedBy::Rule);
    Resolution { outlook, step: JudgingStep::Answer, by, place }
}

#[cfg(test)]
mod tests {
    use super::super::PlacedRule;
    use super::*;
    use ApprovalMode::{ApproveAll, Prompt, RejectAll};

    const RULES: [Option<Rule>; 4] = [None, Some(Rule::Allow), Some(Rule::Ask), Some(Rule::Block)];
    const KINDS: [VerdictKind; 6] = [
        VerdictKind::Allow,
        VerdictKind::Ask,
        VerdictKind::AskAnyway,
        VerdictKind::AlwaysAsk,
        VerdictKind::Block,
        VerdictKind::Fail,
    ];

    fn placed(rule: Option<Rule>, place: &str) -> Option<PlacedRule> {
        rule.map(|rule| PlacedRule { rule, place: place.into() })
    }

    /// Every combination of rules, with and without a lasting `allow`.
    fn all_voices() -> Vec<Voices> {
        let mut all = Vec::new();
        for variant in RULES {
            for worker in RULES {
                for manifest in RULES {
                    for yours in [None, Some(Rule::Ask), Some(Rule::Block)] {
                        for organisation in [None, Some(Rule::Ask), Some(Rule::Block)] {
                            for allowance in [None, Some("rules.toml:1".into())] {
                                let (manifest, yours) =
                                    (placed(manifest, "project.json:1"), placed(yours, "rules.toml:2"));
                                let organisation = placed(organisation, "/etc/llm-do/rules.toml:1");
                                all.push(Voices {
                                    variant,
                                    worker,
                                    manifest,
                                    yours,
                                    organisation,
                                    allowance,
                                    person_only: false,
                                });
                            }
                        }
                    }
                }
            }
        }
        all
    }

    fn facts(own: VerdictKind, voices: &Voices) -> Facts<'_> {
        Facts { own, voices, mode: Prompt, is_known: false, is_remembered: false, has_approver: true }
    }

    /// The calls of the table that the documentation shows.
    #[test]
    fn the_documented_calls_come_out_as_documented() {
        use CallOutlook::{Ask, Block, Run};
        let ask = VerdictKind::Ask;
        let allowed = Some(Arc::from("rules.toml:1"));
        let own = |rule| placed(Some(rule), "rules.toml:2");
        let organisation = placed(Some(Rule::Ask), "/etc/llm-do/rules.toml:1");
        let none = Voices::default;
        let cases = [
            ("no rule", ask, none(), Prompt, Ask, DecidedBy::Person),
            ("the agent allows", ask, Voices { worker: Some(Rule::Allow), ..none() }, Prompt, Run, DecidedBy::Worker),
            (
                "the agent asks, a lasting rule answers",
                ask,
                Voices { worker: Some(Rule::Ask), allowance: allowed.clone(), ..none() },
                Prompt,
                Run,
                DecidedBy::Rule,
            ),
            (
                "the strictest rule",
                ask,
                Voices { manifest: placed(Some(Rule::Allow), "project.json:3"), yours: own(Rule::Ask), ..none() },
                Prompt,
                Ask,
                DecidedBy::Person,
            ),
            (
                "the organisation asks",
                ask,
                Voices { allowance: allowed.clone(), organisation: organisation.clone(), ..none() },
                Prompt,
                Ask,
                DecidedBy::Person,
            ),
            (
                "the organisation asks, whoever approves all",
                ask,
                Voices { allowance: allowed.clone(), organisation, ..none() },
                ApproveAll,
                Ask,
                DecidedBy::Person,
            ),
            (
                "what always asks",
                VerdictKind::AskAnyway,
                Voices { allowance: allowed, ..none() },
                Prompt,
                Ask,
                DecidedBy::Person,
            ),
            (
                "a block of one's own",
                ask,
                Voices { worker: Some(Rule::Allow), yours: own(Rule::Block), ..none() },
                Prompt,
                Block,
                DecidedBy::Yours,
            ),
        ];
        for (name, own, voices, mode, outlook, by) in cases {
            let decision = decide(Facts { mode, ..facts(own, &voices) });
            assert_eq!((decision.outlook, decision.by), (outlook, by), "{name}");
        }
    }

    #[test]
    fn a_question_is_answered_by_the_first_who_has_an_answer() {
        use DecidedBy::{Known, Nobody, Person, Session};
        let cases = [
            // mode, known, a lasting rule, remembered, an approver → who answers
            (RejectAll, true, true, true, true, DecidedBy::RejectAll),
            (RejectAll, false, false, false, false, DecidedBy::RejectAll),
            (ApproveAll, true, true, true, true, Known),
            (ApproveAll, false, true, true, true, DecidedBy::Rule),
            (ApproveAll, false, false, true, true, Session),
            (ApproveAll, false, false, false, true, DecidedBy::ApproveAll),
            (ApproveAll, false, false, false, false, DecidedBy::ApproveAll),
            (Prompt, true, true, true, true, Known),
            (Prompt, true, false, false, false, Known),
            (Prompt, false, true, true, true, DecidedBy::Rule),
            (Prompt, false, true, false, false, DecidedBy::Rule),
            (Prompt, false, false, true, true, Session),
            (Prompt, false, false, true, false, Session),
            (Prompt, false, false, false, true, Person),
            (Prompt, false, false, false, false, Nobody),
        ];
        for (mode, is_known, is_allowed, is_remembered, has_approver, expected) in cases {
            let voices = Voices { allowance: is_allowed.then(|| "rules.toml:1".into()), ..Voices::default() };
            let facts = Facts { own: VerdictKind::Ask, voices: &voices, mode, is_known, is_remembered, has_approver };
            assert_eq!(decide(facts).by, expected, "{facts:?}");
        }
    }

    /// Whoever is said to have decided is one without whom it would have come out otherwise, or as strict as who is.
    #[test]
    fn who_decided_says_what_counts() {
        for own in KINDS {
            for voices in all_voices() {
                let ruled = verdict(own, &voices);
                let said = match ruled.by {
                    DecidedBy::Toolset => {
                        assert_eq!(ruled.kind, own);
                        continue;
                    }
                    DecidedBy::Worker => voices.worker,
                    DecidedBy::Variant => voices.variant,
                    DecidedBy::Manifest => voices.manifest.as_ref().map(|rule| rule.rule),
                    DecidedBy::Yours => voices.yours.as_ref().map(|rule| rule.rule),
                    DecidedBy::Organisation => voices.organisation.as_ref().map(|rule| rule.rule),
                    by => panic!("{by:?} is no rule"),
                };
                let strictest = voices.verdicts().map(|(rule, _, _)| rule).max();
                assert_eq!(said, strictest, "{own:?} {voices:?}");
                let kind = match strictest.unwrap() {
                    Rule::Allow => VerdictKind::Allow,
                    Rule::Ask => VerdictKind::Ask,
                    Rule::Block => VerdictKind::Block,
                };
                assert_eq!(ruled.kind, kind, "{own:?} {voices:?}");
            }
        }
    }

    /// A lasting `allow` never lifts a block or what always asks; nothing that tightens lets more pass.
    #[test]
    fn allowing_never_lifts_the_floor_and_tightening_never_loosens() {
        let passes = |outlook: CallOutlook| match outlook {
            CallOutlook::Run => 2,
            CallOutlook::Ask => 1,
            CallOutlook::Block | CallOutlook::Fail => 0,
        };
        for own in KINDS {
            for voices in all_voices() {
                for (mode, is_remembered) in [(Prompt, false), (Prompt, true), (ApproveAll, false), (RejectAll, false)]
                {
                    let before = decide(Facts { mode, is_remembered, ..facts(own, &voices) });
                    let allowed = Voices { allowance: Some("rules.toml:9".into()), ..voices.clone() };
                    let after = decide(Facts { mode, is_remembered, ..facts(own, &allowed) });
                    if matches!(before.outlook, CallOutlook::Block | CallOutlook::Fail) {
                        assert_eq!(after.outlook, before.outlook, "{own:?} {voices:?}");
                    }
                    if matches!(own, VerdictKind::AskAnyway | VerdictKind::AlwaysAsk) {
                        assert_eq!((after.outlook, after.by), (before.outlook, before.by), "{own:?} {voices:?}");
                    }
                    for rule in [Rule::Ask, Rule::Block] {
                        let tighter = |voice: &Option<PlacedRule>| match voice {
                            Some(voice) if voice.rule >= rule => Some(voice.clone()),
                            _ => placed(Some(rule), "x:1"),
                        };
                        let own_rule = Voices { yours: tighter(&voices.yours), ..voices.clone() };
                        let organisation = Voices { organisation: tighter(&voices.organisation), ..voices.clone() };
                        for tightened in [own_rule, organisation] {
                            let after = decide(Facts { mode, is_remembered, ..facts(own, &tightened) });
                            assert!(passes(after.outlook) <= passes(before.outlook), "{own:?} {voices:?} {rule:?}");
                        }
                    }
                }
            }
        }
    }
}
