//! A form at the terminal: its fields one after the other, each a line that is edited; then all of them are sent together.

use std::io;

use llm_do::approval::{Form, FormField};
use llm_do::escape::{visible, visible_name};
use llm_do::{Answer, RawJson};
use serde_json::{Map, Value};

use crate::console;
use crate::draft::{DraftLine, LineKey};
use crate::terminal::{DraftOutcome, TerminalKeys};

/// Below the question.
pub const HOW: &str = "Enter answers  Esc declines  Ctrl-C stops";

/// A form that is being filled in. What was typed stays if the person goes away from it and comes back.
pub struct FormDraft<'a> {
    form: &'a Form,
    lines: Vec<DraftLine>,
    /// The values of the fields before the present one.
    values: Vec<Option<Value>>,
}

/// What came of filling in.
pub enum FormOutcome {
    Answer(Answer),
    /// The process was stopped and goes on: the question stands nowhere any more.
    Again,
}

/// What the person wants once every field has been asked for.
enum LastWord<'a> {
    Send,
    Change(&'a FormField),
    Unclear,
}

impl<'a> FormDraft<'a> {
    pub fn of(form: &'a Form) -> Self {
        Self { form, lines: vec![DraftLine::default(); form.fields.len()], values: Vec::new() }
    }

    /// Asks for the field that comes next, and so on. Escape declines at any of them.
    pub async fn fill(&mut self, keys: &mut TerminalKeys<'_>) -> io::Result<FormOutcome> {
        loop {
            let at = self.values.len();
            let Some(field) = self.form.fields.get(at) else {
                match self.last_word(keys).await? {
                    Some(outcome) => return Ok(outcome),
                    None => continue,
                }
            };
            match self.typed(at, field, keys).await? {
                DraftOutcome::Left => return Ok(FormOutcome::Answer(declined())),
                DraftOutcome::Returned => return Ok(FormOutcome::Again),
                DraftOutcome::Text(text) => match checked(field, &text) {
                    Ok(value) => self.values.push(value),
                    Err(wrong) => console::complain(&format!("{}\n", visible(&wrong))),
                },
            }
        }
    }

    /// One field is sent as it is; of several the person may still change one.
    async fn last_word(&mut self, keys: &mut TerminalKeys<'_>) -> io::Result<Option<FormOutcome>> {
        if self.form.fields.len() == 1 {
            return Ok(Some(FormOutcome::Answer(self.answer())));
        }
        let typed = match keys.line(SEND, &mut DraftLine::default()).await? {
            DraftOutcome::Left => return Ok(Some(FormOutcome::Answer(declined()))),
            DraftOutcome::Returned => return Ok(Some(FormOutcome::Again)),
            DraftOutcome::Text(typed) => typed,
        };
        match meant(self.form, &typed) {
            LastWord::Send => Ok(Some(FormOutcome::Answer(self.answer()))),
            LastWord::Unclear => {
                console::complain("Enter sends the answers; the name of a field changes it\n");
                Ok(None)
            }
            LastWord::Change(field) => Ok(self.change(field, keys).await?),
        }
    }

    /// Asks for one field again. Escape declines here too.
    async fn change(&mut self, field: &FormField, keys: &mut TerminalKeys<'_>) -> io::Result<Option<FormOutcome>> {
        let Some(at) = self.form.fields.iter().position(|other| other.name == field.name) else { return Ok(None) };
        loop {
            match self.typed(at, field, keys).await? {
                DraftOutcome::Left => return Ok(Some(FormOutcome::Answer(declined()))),
                DraftOutcome::Returned => return Ok(Some(FormOutcome::Again)),
                DraftOutcome::Text(text) => match checked(field, &text) {
                    Ok(value) => {
                        self.values[at] = value;
                        return Ok(None);
                    }
                    Err(wrong) => console::complain(&format!("{}\n", visible(&wrong))),
                },
            }
        }
    }

    /// The line of a field, which goes on behind what was typed there before.
    async fn typed(&mut self, at: usize, field: &FormField, keys: &mut TerminalKeys<'_>) -> io::Result<DraftOutcome> {
        let line = &mut self.lines[at];
        line.press(LineKey::End);
        keys.line(&format!("{}: ", visible_name(&field.name)), line).await
    }

    fn answer(&self) -> Answer {
        let given = self.form.fields.iter().zip(&self.values);
        let values = given.filter_map(|(field, value)| Some((field.name.clone(), value.clone()?)));
        Answer::Values(RawJson::of(&values.collect::<Map<_, _>>()))
    }
}

const SEND: &str = "send? (Enter sends, a field's name changes it) ";

fn declined() -> Answer {
    Answer::Refuse { reason: None }
}

fn checked(field: &FormField, text: &str) -> Result<Option<Value>, String> {
    match field.value(text)? {
        None if field.required => Err(format!("`{}` is wanted: {}; Esc declines", field.name, field.wanted())),
        value => Ok(value),
    }
}

fn meant<'a>(form: &'a Form, typed: &str) -> LastWord<'a> {
    let named = form.fields.iter().find(|field| field.name.eq_ignore_ascii_case(typed));
    match (typed, named) {
        (_, Some(field)) => LastWord::Change(field),
        ("" | "y" | "yes", None) => LastWord::Send,
        (_, None) => LastWord::Unclear,
    }
}
