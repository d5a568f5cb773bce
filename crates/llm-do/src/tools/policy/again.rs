//! Why a call comes out as it does, and what would become of a recorded call under other rules. Pure: the same three steps
//! as for a call that is about to run.

use std::sync::Arc;

use serde::Serialize;

use super::{LastingRules, RuledCall};
use crate::tools::approval::decide::{Facts, decide};
use crate::tools::approval::{
    ApprovalMode, CallOutlook, DecidedBy, JudgementRecord, JudgingStep, PlacedRule, Rule, VerdictKind, Voices,
};

/// What becomes of a call, in which step that is decided and by whom, and who else has spoken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What becomes of it.
    pub outlook: CallOutlook,
    /// Which of the three steps decides.
    pub step: JudgingStep,
    /// Who decides.
    pub by: DecidedBy,
    /// Where the lasting rule stands that decides, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The toolset's own verdict.
    pub toolset: VerdictKind,
    /// What rules say, the nearest to the call first.
    pub rules: Vec<SpokenRule>,
}

/// What one rule says of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpokenRule {
    /// Whose it is.
    pub whose: DecidedBy,
    /// What it says.
    pub says: Rule,
    /// Where it stands, if it is a lasting one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

impl Explanation {
    /// Of a call that was judged so, where a person could be asked.
    pub fn of(own: VerdictKind, voices: &Voices, mode: ApprovalMode) -> Self {
        let facts = Facts { own, voices, mode, is_known: false, is_remembered: false, has_approver: true };
        let decision = decide(facts);
        let spoken = |(says, whose, place): (Rule, DecidedBy, Option<&Arc<str>>)| SpokenRule {
            whose,
            says,
            place: place.map(|place| place.as_ref().to_owned()),
        };
        let allowance = voices.allowance.as_ref().map(|place| spoken((Rule::Allow, DecidedBy::Rule, Some(place))));
        Self {
            outlook: decision.outlook,
            step: decision.step,
            by: decision.by,
            rule: decision.place.map(|place| place.as_ref().to_owned()),
            toolset: own,
            rules: voices.verdicts().map(spoken).chain(allowance).collect(),
        }
    }

    /// Of a recorded call under these rules. What its toolset, its agent and its project said is as it was recorded.
    pub fn again(record: &JudgementRecord, call: RuledCall<'_>, rules: &LastingRules) -> Self {
        let recorded = record.manifest.map(|rule| PlacedRule { rule, place: "the manifest".into() });
        let voices = Voices { variant: record.variant, worker: record.worker, manifest: recorded, ..Voices::default() };
        Self::of(record.verdict, &rules.voices(call, voices), ApprovalMode::Prompt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [Option<Rule>; 4] = [None, Some(Rule::Allow), Some(Rule::Ask), Some(Rule::Block)];

    /// What the page says of a call, said once more in other words: first what blocks, then what cannot be judged, then whether
    /// anything asks, and then who answers.
    fn told(own: VerdictKind, voices: &Voices, mode: ApprovalMode) -> (CallOutlook, JudgingStep, DecidedBy) {
        use JudgingStep::{Answer, Floor, Verdict};
        let of = |rule: &Option<PlacedRule>| rule.as_ref().map(|rule| rule.rule);
        let speakers = [
            (voices.worker, DecidedBy::Worker),
            (voices.variant, DecidedBy::Variant),
            (of(&voices.manifest), DecidedBy::Manifest),
            (of(&voices.yours), DecidedBy::Yours),
            (of(&voices.organisation), DecidedBy::Organisation),
        ];
        let first = |says: Rule| speakers.iter().find(|(rule, _)| *rule == Some(says)).map(|(_, who)| *who);
        if own == VerdictKind::Block {
            return (CallOutlook::Block, Floor, DecidedBy::Toolset);
        }
        if let Some(who) = first(Rule::Block) {
            return (CallOutlook::Block, Verdict, who);
        }
        if own == VerdictKind::Fail {
            return (CallOutlook::Fail, Floor, DecidedBy::Toolset);
        }
        let always = matches!(own, VerdictKind::AskAnyway | VerdictKind::AlwaysAsk);
        let nobody_speaks = speakers.iter().all(|(rule, _)| rule.is_none());
        let asks = always || first(Rule::Ask).is_some() || (nobody_speaks && own == VerdictKind::Ask);
        if !asks {
            return (CallOutlook::Run, Verdict, first(Rule::Allow).unwrap_or(DecidedBy::Toolset));
        }
        let organisation_asks = of(&voices.organisation) == Some(Rule::Ask);
        let (outlook, who) = match mode {
            ApprovalMode::RejectAll => (CallOutlook::Block, DecidedBy::RejectAll),
            _ if organisation_asks => (CallOutlook::Ask, DecidedBy::Person),
            _ if voices.allowance.is_some() && !always => (CallOutlook::Run, DecidedBy::Rule),
            ApprovalMode::ApproveAll => (CallOutlook::Run, DecidedBy::ApproveAll),
            ApprovalMode::Prompt => (CallOutlook::Ask, DecidedBy::Person),
        };
        (outlook, Answer, who)
    }

    fn placed(rule: Option<Rule>, place: &str) -> Option<PlacedRule> {
        rule.map(|rule| PlacedRule { rule, place: place.into() })
    }

    /// Of every sort of call under every set of rules and each mode: far more than two hundred.
    #[test]
    fn an_explanation_names_the_step_and_the_voice_that_decide() {
        let kinds = [
            VerdictKind::Allow,
            VerdictKind::Ask,
            VerdictKind::AskAnyway,
            VerdictKind::AlwaysAsk,
            VerdictKind::Block,
            VerdictKind::Fail,
        ];
        let modes = [ApprovalMode::Prompt, ApprovalMode::ApproveAll, ApprovalMode::RejectAll];
        let mut explained = 0;
        for number in 0..4_usize.pow(5) * 2 {
            let rule = |position: u32| RULES[number / 4_usize.pow(position) % 4];
            let (yours, organisation) = (rule(3), rule(4));
            // Whose `allow` is no verdict.
            if yours == Some(Rule::Allow) || organisation == Some(Rule::Allow) {
                continue;
            }
            let voices = Voices {
                variant: rule(0),
                worker: rule(1),
                manifest: placed(rule(2), "project.json:3"),
                yours: placed(yours, "rules.toml:5"),
                organisation: placed(organisation, "/etc/llm-do/rules.toml:7"),
                allowance: (number >= 4_usize.pow(5)).then(|| "rules.toml:9".into()),
                person_only: false,
            };
            for (own, mode) in kinds.iter().flat_map(|own| modes.map(|mode| (*own, mode))) {
                let Explanation { outlook, step, by, rule, toolset, rules } = Explanation::of(own, &voices, mode);
                assert_eq!((outlook, step, by), told(own, &voices, mode), "{own:?} {mode:?} {voices:?}");
                let place = match by {
                    DecidedBy::Manifest => Some("project.json:3"),
                    DecidedBy::Yours => Some("rules.toml:5"),
                    DecidedBy::Organisation => Some("/etc/llm-do/rules.toml:7"),
                    DecidedBy::Rule => Some("rules.toml:9"),
                    _ => None,
                };
                assert_eq!((rule.as_deref(), toolset), (place, own));
                assert_eq!(rules.len(), voices.verdicts().count() + usize::from(voices.allowance.is_some()));
                explained += 1;
            }
        }
        assert!(explained >= 200, "{explained}");
    }

    /// The seven calls of the page.
    #[test]
    fn the_calls_of_the_page_are_explained_as_they_are_told() {
        use JudgingStep::{Answer, Verdict};
        let none = Voices::default;
        let mine = || Some(Arc::from("rules.toml:1"));
        let asks = || placed(Some(Rule::Ask), "x:1");
        let (prompt, all) = (ApprovalMode::Prompt, ApprovalMode::ApproveAll);
        let organisation = || Voices { allowance: mine(), organisation: asks(), ..none() };
        let (ask, anyway) = (VerdictKind::Ask, VerdictKind::AskAnyway);
        let manifest = placed(Some(Rule::Allow), "project.json:3");
        let blocked = Voices { worker: Some(Rule::Allow), yours: placed(Some(Rule::Block), "x:1"), ..none() };
        for (own, voices, mode, step, by) in [
            (ask, none(), prompt, Answer, DecidedBy::Person),
            (ask, Voices { worker: Some(Rule::Allow), ..none() }, prompt, Verdict, DecidedBy::Worker),
            (ask, Voices { worker: Some(Rule::Ask), allowance: mine(), ..none() }, prompt, Answer, DecidedBy::Rule),
            (ask, Voices { manifest, yours: asks(), ..none() }, prompt, Answer, DecidedBy::Person),
            (ask, organisation(), prompt, Answer, DecidedBy::Person),
            (ask, organisation(), all, Answer, DecidedBy::Person),
            (anyway, Voices { allowance: mine(), ..none() }, prompt, Answer, DecidedBy::Person),
            (ask, blocked, prompt, Verdict, DecidedBy::Yours),
        ] {
            let explained = Explanation::of(own, &voices, mode);
            assert_eq!((explained.step, explained.by), (step, by), "{voices:?}");
        }
    }
}
