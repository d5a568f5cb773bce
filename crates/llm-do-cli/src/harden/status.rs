//! How a hardened name stands: who answers, how often, how well they agree, and what that saved.

use llm_do::escape::visible;
use llm_do::program::{AgentSpec, AnswerMode, StandIn};
use llm_do::tests::PassRate;

use super::files::word;
use super::records::RecordedAnswers;
use super::trial::interval;

const SHOWN: usize = 5;

pub fn text(agent: &AgentSpec, stand_in: &StandIn, answers: &RecordedAnswers) -> String {
    let (by_code, by_agent): (Vec<_>, Vec<_>) =
        answers.calls.iter().map(|(_, call)| call).partition(|call| call.is_by_code);
    let spent: f64 = by_agent.iter().filter_map(|call| call.usage.cost_usd).sum();
    let mut text = format!(
        "{}   mode {}   ({}:{})\n",
        agent.name,
        word(stand_in.mode),
        visible(&stand_in.file.display().to_string()),
        stand_in.function
    );
    text.push_str(&format!(
        "{} answered by the agent (${spent:.4}), {} by the code\n",
        count(by_agent.len()),
        by_code.len()
    ));
    let shadows: Vec<_> = by_agent.iter().filter_map(|call| Some((call, call.shadow.as_ref()?))).collect();
    if !shadows.is_empty() {
        let same = shadows.iter().filter(|(_, (_, is_same))| *is_same).count() as u64;
        let rate = PassRate::of(same, shadows.len() as u64);
        text.push_str(&format!(
            "beside the agent the code gave the same answer {same} of {} times ({})\n",
            shadows.len(),
            interval(&rate)
        ));
        for (call, (code, _)) in shadows.iter().filter(|(_, (_, is_same))| !is_same).take(SHOWN) {
            let code = code.as_ref().map_or_else(|| "no answer".to_owned(), |code| code.get().to_owned());
            text.push_str(&format!(
                "  differs: {}   agent: {}   code: {}\n",
                visible(call.input.get()),
                visible(call.output.get()),
                visible(&code)
            ));
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of calls")]
    if !by_code.is_empty() && !by_agent.is_empty() && spent > 0.0 {
        let each = spent / by_agent.len() as f64;
        text.push_str(&format!(
            "saved about ${:.4}, at ${each:.5} for a call of the agent\n",
            each * by_code.len() as f64
        ));
    }
    if stand_in.mode == AnswerMode::Shadow && shadows.is_empty() {
        text.push_str("no call was compared yet: run the project, and ask again\n");
    }
    text
}

fn count(calls: usize) -> String {
    if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") }
}
