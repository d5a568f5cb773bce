//! Rules that a person adds at a question: the literal rule is shown, and how wide it is, is their own step.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use llm_do::ApprovalRequest;
use llm_do::escape::{visible, visible_lines};
use llm_do::policy::{RuleDraft, RuledCall};
use llm_do_launch::rules::{self, AddedRules};
use llm_do_launch::settings::Settings;

use crate::console;
use crate::terminal::attention::QuestionStage;
use crate::terminal::editor::{Editor, edit_until_right};
use crate::terminal::style::{Style, Styles, width, wrap_words};
use crate::terminal::{KeyPress, KeySign, Terminal};

/// Where rules are kept, and for which project.
pub struct Lasting {
    settings: Arc<Settings>,
    /// The project's directory, without links.
    project: PathBuf,
    /// Those that were added in this session: they count at once.
    added: RefCell<AddedRules>,
}

/// Whether a rule was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOutcome {
    Added,
    /// Back to the question.
    Left,
}

/// A rule before it is added.
struct RuleChoice {
    /// Each wider than the one before.
    widths: Vec<RuleDraft>,
    width: usize,
    is_for_project: bool,
    expires: Option<String>,
    /// As the person wrote it.
    text: Option<String>,
}

/// Widths that have a key.
const MOST_WIDTHS: usize = 3;

impl Lasting {
    pub fn new(settings: Arc<Settings>, project: PathBuf) -> Self {
        let project = project.canonicalize().unwrap_or(project);
        Self { settings, project, added: RefCell::default() }
    }

    /// Whether one of the rules that were added here answers the question.
    pub fn covers(&self, request: &ApprovalRequest) -> bool {
        self.added.borrow().cover(request, &self.project)
    }

    /// Whether a rule can be made of the call.
    pub fn is_offered(&self, request: &ApprovalRequest) -> bool {
        rules::own_file(&self.settings).is_some() && self.choice(request).is_some()
    }

    fn choice(&self, request: &ApprovalRequest) -> Option<RuleChoice> {
        let ApprovalRequest { path, tool, arguments, about, caller, .. } = request;
        let call = RuledCall { tool, path, arguments: Some(arguments), subject: about.as_ref() };
        let exact = RuleDraft::exact(call, &caller.replace(" › ", " > "), &self.project)?;
        let mut widths = vec![exact.clone()];
        widths.extend(exact.widened());
        widths.truncate(MOST_WIDTHS);
        Some(RuleChoice { widths, width: 0, is_for_project: true, expires: Some(rules::in_30_days()), text: None })
    }

    /// Shows the rule until it is added or left.
    pub async fn ask(
        &self,
        request: &ApprovalRequest,
        terminal: &Terminal,
        editor: &Editor,
        styles: Styles,
    ) -> io::Result<RuleOutcome> {
        let Some(mut choice) = self.choice(request) else { return Ok(RuleOutcome::Left) };
        let place = rules::own_file(&self.settings).unwrap_or_default();
        let place = format!("state/{}", place.file_name().unwrap_or_default().to_string_lossy());
        console::complain(&format!(": adds this rule to {place}\n"));
        loop {
            let mut keys = terminal.keys()?;
            let text = choice.shown(terminal.size().columns, styles);
            keys.show(&text, QuestionStage::Answer, KeySign::of("Add? ")).await;
            loop {
                let KeyPress::Key(key) = keys.next().await? else { break };
                match key {
                    b'1'..=b'3' if choice.text.is_none() && usize::from(key - b'1') < choice.widths.len() => {
                        choice.width = usize::from(key - b'1');
                    }
                    b'p' if choice.text.is_none() => choice.is_for_project = !choice.is_for_project,
                    b'x' if choice.text.is_none() => {
                        choice.expires = choice.expires.is_none().then(rules::in_30_days);
                    }
                    b'e' => {
                        drop(keys);
                        self.edit(&mut choice, terminal, editor).await;
                        break;
                    }
                    b'a' => match self.added.borrow_mut().add(&self.settings, &choice.toml()) {
                        Ok(_) => {
                            keys.say_behind_sign("a\n");
                            return Ok(RuleOutcome::Added);
                        }
                        Err(error) => {
                            let fact = visible_lines(&error.fact());
                            keys.say_behind_sign(&format!("the rule is not added: {fact}\n"));
                            break;
                        }
                    },
                    b'n' | 0x1b => {
                        keys.say_behind_sign("\r\u{1b}[K");
                        return Ok(RuleOutcome::Left);
                    }
                    _ => {
                        keys.show("", QuestionStage::Answer, KeySign::of("Add? ")).await;
                        continue;
                    }
                }
                keys.say_behind_sign(&format!("{}\n", char::from(key)));
                break;
            }
        }
    }

    async fn edit(&self, choice: &mut RuleChoice, terminal: &Terminal, editor: &Editor) {
        let read = async |text: &str| rules::check(text).map(|_| text.to_owned()).map_err(|error| error.fact());
        match edit_until_right(editor, terminal, "rule.toml", &choice.toml(), read).await {
            Ok(Some(text)) => choice.text = Some(text),
            Ok(None) => console::complain("nothing was changed\n"),
            Err(reason) => console::complain(&format!("not edited: {reason}\n")),
        }
    }
}

impl RuleChoice {
    fn draft(&self) -> RuleDraft {
        let mut draft = self.widths[self.width].clone();
        draft.project = draft.project.filter(|_| self.is_for_project);
        draft.expires.clone_from(&self.expires);
        draft
    }

    fn toml(&self) -> String {
        self.text.clone().unwrap_or_else(|| self.draft().toml())
    }

    fn shown(&self, columns: usize, styles: Styles) -> String {
        let keys: &[&str];
        let mut shown = String::new();
        if let Some(text) = &self.text {
            let lines = visible_lines(text.trim_end());
            lines.lines().for_each(|line| shown.push_str(&format!("   {line}\n")));
            keys = &["e edit", "a again: add and allow", "Esc back"];
        } else {
            let (scope, call): (Vec<_>, Vec<_>) =
                self.draft().keys().into_iter().partition(|(key, _)| ["project", "expires"].contains(key));
            for line in [call, scope] {
                let words: Vec<String> =
                    line.iter().map(|(key, value)| format!("{key} = {}", visible(value))).collect();
                if !words.is_empty() {
                    shown.push_str(&format!("   {}\n", words.join("   ")));
                }
            }
            if self.widths.len() > 1 {
                let words: Vec<String> =
                    (1..).zip(&self.widths).map(|(n, draft)| format!("{n} {}", condition(draft))).collect();
                let gap = if width(&words.join("  ")) <= columns { "  " } else { "\n" };
                let bold = |(index, words): (usize, &String)| {
                    if index == self.width { styles.paint(Style::Bold, words) } else { words.clone() }
                };
                let widths: Vec<String> = words.iter().enumerate().map(bold).collect();
                shown.push_str(&format!("{}\n", widths.join(gap)));
            }
            keys = &["p project or all", "x 30 days or never", "e edit", "a again: add and allow", "Esc back"];
        }
        let keys: Vec<String> = keys.iter().map(|words| (*words).to_owned()).collect();
        format!("{shown}{}\n", wrap_words(&keys, "  ", columns).join("\n"))
    }
}

/// What a rule says of the arguments.
fn condition(draft: &RuleDraft) -> String {
    let is_other = |key: &str| !["allow", "agent", "project", "expires"].contains(&key);
    let words = draft.keys().into_iter().filter(|(key, _)| is_other(key));
    let words: Vec<String> = words.map(|(key, value)| format!("{key} = {}", visible(&value))).collect();
    if words.is_empty() { "any arguments".to_owned() } else { words.join(" ") }
}
