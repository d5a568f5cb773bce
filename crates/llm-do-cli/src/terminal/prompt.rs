//! Questions to the person at the terminal: they go to stderr, the answers come from the controlling terminal.

use std::collections::HashMap;
use std::io;

use llm_do::approval::{Form, Memory, Question, RAISE_LIMIT};
use llm_do::escape::visible;
use llm_do::questions::QuestionId;
use llm_do::{Answer, ApprovalRequest, RawJson};

use crate::console;
use crate::draft::DraftLine;
use crate::terminal::arguments::{self, EditableArguments};
use crate::terminal::attention::QuestionStage;
use crate::terminal::editor::Editor;
use crate::terminal::form::{self, FormDraft, FormOutcome};
use crate::terminal::lasting::{Lasting, RuleOutcome};
use crate::terminal::style::{Style, Styles, wrap, wrap_words};
use crate::terminal::{DraftOutcome, KeyPress, KeySign, Terminal, TerminalKeys, TerminalSize};
use llm_do_launch::question::{self, AnswerKey, AnswerOffer, LineRole, QuestionLine, QuestionNumber};

/// The person at the terminal.
pub struct Asking {
    pub terminal: Terminal,
    pub editor: Editor,
    pub styles: Styles,
    /// Whether the window has a title that can say that somebody is waited for.
    pub has_title: bool,
    pub numbers: QuestionNumbers,
    /// Rules that last.
    pub lasting: Lasting,
}

/// The numbers of the questions of a session.
#[derive(Clone, Debug, Default)]
pub struct QuestionNumbers {
    /// With whether others stood open beside it.
    given: HashMap<QuestionId, (usize, bool)>,
}

impl QuestionNumbers {
    /// The next number, unless it has one.
    pub fn assign(&mut self, id: &QuestionId, is_one_of_several: bool) {
        let next = self.given.len() + 1;
        let given = self.given.entry(id.clone()).or_insert((next, is_one_of_several));
        given.1 |= is_one_of_several;
    }

    fn of(&self, id: &str) -> QuestionNumber {
        let (number, is_one_of_several) = self.given.get(id).copied().unwrap_or((self.given.len() + 1, false));
        QuestionNumber { number, of: is_one_of_several.then_some(self.given.len()) }
    }

    /// As it is spoken of: `2 of 3`.
    pub fn name(&self, id: &str) -> String {
        match self.of(id) {
            QuestionNumber { number, of: Some(of) } => format!("{number} of {of}"),
            QuestionNumber { number, of: None } => format!("approval {number}"),
        }
    }
}

/// The person's editor, and what they can add rules to.
pub struct PersonTools {
    pub editor: Editor,
    pub lasting: Lasting,
}

/// A question as it is asked: about the call, or about what the person made of it.
struct AskedCall<'a> {
    request: &'a ApprovalRequest,
    number: QuestionNumber,
    offer: AnswerOffer,
    edited: Option<(RawJson, Question)>,
}

/// What was pressed at a question.
enum QuestionChoice {
    Answer(Answer),
    Edit,
    Reason,
    Rule,
    /// The process was stopped and goes on: the question stands nowhere any more.
    Again,
}

/// How far a question was shown.
enum ShownQuestion {
    Whole,
    Left(QuestionChoice),
}

const ALLOW: &str = "Allow? ";
const WRONG_KEY: &str = "press y or n, ? explains";

impl AskedCall<'_> {
    fn lines(&self) -> Vec<QuestionLine> {
        match &self.edited {
            None => question::lines(self.request, self.number),
            Some((arguments, of)) => question::edited_lines(self.request, arguments, of, self.number),
        }
    }

    fn yes(&self) -> Answer {
        match &self.edited {
            None => Answer::Once,
            Some((arguments, _)) => Answer::Edited(arguments.clone()),
        }
    }

    fn arguments(&self) -> (&RawJson, &Question) {
        match &self.edited {
            None => (&self.request.arguments, &self.request.question),
            Some((arguments, question)) => (arguments, question),
        }
    }
}

impl Asking {
    /// Asks until there is an answer; a terminal that is gone gives none. Dropped, it leaves the terminal as it was.
    pub async fn ask(&mut self, request: &ApprovalRequest) -> Option<Answer> {
        let number = self.numbers.of(&request.id);
        if self.lasting.covers(request) {
            if self.has_title {
                let words = format!("✓ {} was approved: the rule that you added allows it", visible(&request.tool));
                console::complain(&format!("{}\n", self.styles.paint(Style::Dim, &words)));
            }
            return Some(Answer::Once);
        }
        let answer = {
            let _called = self.terminal.call_person(self.has_title);
            self.answer(request, number).await
        };
        let answer =
            answer.map_err(|error| console::complain(&format!("the terminal cannot be read: {error}\n"))).ok()?;
        Some(answer)
    }

    /// All that stand open have numbers, in the order in which they were asked, and this one in any case.
    pub fn number<'a>(&mut self, open: impl ExactSizeIterator<Item = &'a QuestionId>, asked: &QuestionId) {
        let is_one_of_several = open.len() > 1;
        open.for_each(|id| self.numbers.assign(id, is_one_of_several));
        self.numbers.assign(asked, is_one_of_several);
    }

    async fn answer(&self, request: &ApprovalRequest, number: QuestionNumber) -> io::Result<Answer> {
        if let Some(form) = &request.question.form {
            return self.fill(request, form, number).await;
        }
        let is_about_limit = request.tool == RAISE_LIMIT;
        let lasts = request.memory == Memory::CallOrTool && self.lasting.is_offered(request);
        let offer = AnswerOffer { memory: request.memory, lasts, raises: is_about_limit, fills: false };
        let mut asked = AskedCall { request, number, offer, edited: None };
        loop {
            match self.choice(&asked).await? {
                QuestionChoice::Answer(answer) => return Ok(answer),
                QuestionChoice::Again => {}
                QuestionChoice::Reason if is_about_limit => return Ok(Answer::Refuse { reason: None }),
                QuestionChoice::Edit if is_about_limit => {
                    let mut keys = self.terminal.keys()?;
                    let typed = keys.line("raise it to? ", &mut DraftLine::default()).await?;
                    let DraftOutcome::Text(typed) = typed else { continue };
                    match request.answer_by_values(&[(String::new(), typed)]) {
                        Ok(answer) => return Ok(answer),
                        Err(wrong) => console::complain(&format!("not raised: {}\n", visible(&wrong))),
                    }
                }
                QuestionChoice::Reason => {
                    if let Some(refused) = self.reason(&asked).await? {
                        return Ok(refused);
                    }
                }
                QuestionChoice::Rule => {
                    let added = self.lasting.ask(request, &self.terminal, &self.editor, self.styles).await?;
                    if added == RuleOutcome::Added {
                        return Ok(Answer::Once);
                    }
                }
                QuestionChoice::Edit => {
                    let (arguments, of) = asked.arguments();
                    let editable =
                        EditableArguments { arguments, edits: of.edits.as_deref(), about: request.about.as_ref() };
                    let judged = async |edited: RawJson| Ok((edited.clone(), request.with_arguments(edited).await?));
                    match arguments::edit(&self.editor, &self.terminal, editable, judged).await {
                        Ok(Some(edited)) => {
                            // What is asked about now was written by the person, and is remembered for nobody.
                            let offer =
                                AnswerOffer { memory: Memory::Nothing, lasts: false, raises: false, fills: false };
                            asked = AskedCall { edited: Some(edited), offer, ..asked };
                        }
                        Ok(None) => console::complain("nothing was changed\n"),
                        Err(reason) => console::complain(&format!("not edited: {reason}\n")),
                    }
                }
            }
        }
    }

    /// A form, shown whole before its first field is asked for.
    async fn fill(&self, request: &ApprovalRequest, form: &Form, number: QuestionNumber) -> io::Result<Answer> {
        let offer = AnswerOffer { memory: Memory::Nothing, lasts: false, raises: false, fills: true };
        let asked = AskedCall { request, number, offer, edited: None };
        let mut draft = FormDraft::of(form);
        loop {
            let mut keys = self.terminal.keys()?;
            match self.show(&mut keys, &asked).await? {
                ShownQuestion::Whole => {}
                ShownQuestion::Left(QuestionChoice::Answer(answer)) => return Ok(answer),
                ShownQuestion::Left(QuestionChoice::Reason) => return Ok(Answer::Refuse { reason: None }),
                ShownQuestion::Left(QuestionChoice::Again | QuestionChoice::Edit | QuestionChoice::Rule) => continue,
            }
            keys.show("", QuestionStage::Answer, KeySign::default()).await;
            if !keys.settle().await? {
                continue;
            }
            match draft.fill(&mut keys).await? {
                FormOutcome::Answer(answer) => {
                    if matches!(answer, Answer::Refuse { .. }) {
                        console::complain("declined\n");
                    }
                    return Ok(answer);
                }
                FormOutcome::Again => {}
            }
        }
    }

    /// Why not; nothing if the person goes back to the question.
    async fn reason(&self, asked: &AskedCall<'_>) -> io::Result<Option<Answer>> {
        let mut line = DraftLine::default();
        loop {
            let mut keys = self.terminal.keys()?;
            match keys.line("why? (the model reads it) ", &mut line).await? {
                DraftOutcome::Text(reason) => {
                    return Ok(Some(Answer::Refuse { reason: Some(reason).filter(|reason| !reason.is_empty()) }));
                }
                DraftOutcome::Left => return Ok(None),
                DraftOutcome::Returned => console::complain(&format!("{}\n", self.rows(asked).join("\n"))),
            }
        }
    }

    /// All rows of a question with its keys. Wrapped first, painted then: no row may end within a control code.
    fn rows(&self, asked: &AskedCall<'_>) -> Vec<String> {
        let columns = self.terminal.size().columns;
        let painted_rows = |line: &QuestionLine| -> Vec<String> {
            wrap(&line.text, columns).into_iter().map(|row| painted(self.styles, line.role, &row)).collect()
        };
        let mut rows: Vec<String> = asked.lines().iter().flat_map(painted_rows).collect();
        if asked.offer.fills {
            rows.extend(wrap(form::HOW, columns));
        }
        rows.extend(key_rows(&question::keys(asked.offer), self.styles, columns));
        rows
    }

    async fn choice(&self, asked: &AskedCall<'_>) -> io::Result<QuestionChoice> {
        let mut keys = self.terminal.keys()?;
        if let ShownQuestion::Left(choice) = self.show(&mut keys, asked).await? {
            return Ok(choice);
        }
        let AskedCall { request, offer, .. } = asked;
        // A key that covers more than this call counts when it is pressed again.
        let mut pressed = None;
        keys.show("", QuestionStage::Answer, KeySign::of(ALLOW)).await;
        loop {
            let KeyPress::Key(key) = keys.next().await? else { return Ok(QuestionChoice::Again) };
            let key = key.to_ascii_lowercase();
            let again = pressed.replace(key) == Some(key);
            let of_tool = key == b't';
            let said = match key {
                b'y' => {
                    keys.say_behind_sign("y\n");
                    return Ok(QuestionChoice::Answer(asked.yes()));
                }
                b's' | b't' if offer.memory == Memory::CallOrTool || (offer.memory == Memory::CallOnly && !of_tool) => {
                    let name = char::from(key);
                    if again {
                        keys.say_behind_sign(&format!("{name}\n"));
                        let answer = if of_tool { Answer::ToolForSession } else { Answer::CallForSession };
                        return Ok(QuestionChoice::Answer(answer));
                    }
                    format!("{name}: {} until you leave. {name} again for yes", question::coverage(request, of_tool))
                }
                b'a' if offer.lasts => {
                    keys.say_behind_sign("a");
                    return Ok(QuestionChoice::Rule);
                }
                b'e' => {
                    keys.say_behind_sign("e\n");
                    return Ok(QuestionChoice::Edit);
                }
                b'n' | b'd' => {
                    keys.say_behind_sign("n\n");
                    return Ok(QuestionChoice::Reason);
                }
                b'q' => {
                    keys.say_behind_sign("q\n");
                    return Ok(QuestionChoice::Answer(Answer::EndRun));
                }
                b'?' => format!("?\n{}", question::explanation(request, *offer).join("\n")),
                _ => WRONG_KEY.to_owned(),
            };
            keys.say_behind_sign(&format!("{said}\n"));
            keys.show("", QuestionStage::Answer, KeySign::of(ALLOW)).await;
        }
    }

    /// Shows a question, page by page if it is longer than the screen: a person can say yes only after they were shown the end.
    async fn show(&self, keys: &mut TerminalKeys<'_>, asked: &AskedCall<'_>) -> io::Result<ShownQuestion> {
        /// For what is said below a page.
        const KEPT: usize = 5;
        let (rows, TerminalSize { rows: height, .. }) = (self.rows(asked), self.terminal.size());
        if rows.len() < height {
            console::complain(&format!("{}\n", rows.join("\n")));
            return Ok(ShownQuestion::Whole);
        }
        let page = height.saturating_sub(KEPT).max(1);
        let mut pages = QuestionPages { start: 0, end: page.min(rows.len()), seen: 0, page, total: rows.len() };
        loop {
            console::complain(&format!("{}\n", rows[pages.start..pages.end].join("\n")));
            pages.seen = pages.seen.max(pages.end);
            if pages.end == rows.len() {
                return Ok(ShownQuestion::Whole);
            }
            match self.turn_page(keys, &mut pages).await? {
                None => {}
                Some(choice) => return Ok(ShownQuestion::Left(choice)),
            }
        }
    }

    /// Waits below a page until another one is wanted, or the person says no.
    async fn turn_page(
        &self,
        keys: &mut TerminalKeys<'_>,
        pages: &mut QuestionPages,
    ) -> io::Result<Option<QuestionChoice>> {
        loop {
            let mark = self.styles.paint(Style::Dim, &wrap(&pages.mark(), self.terminal.size().columns)[0]);
            keys.show(&mark, QuestionStage::Page, KeySign::of(format!("\r{mark}\u{1b}[K"))).await;
            let pressed = keys.next().await?;
            let KeyPress::Key(key) = pressed else { return Ok(Some(QuestionChoice::Again)) };
            keys.say_behind_sign("\r\u{1b}[K");
            match key {
                b' ' | b'\n' | b'\r' => pages.forward(pages.page),
                b'G' => pages.forward(pages.total),
                b'b' => pages.back(),
                b'n' | b'N' | b'd' => return Ok(Some(QuestionChoice::Reason)),
                b'q' | b'Q' => return Ok(Some(QuestionChoice::Answer(Answer::EndRun))),
                b'y' | b's' | b't' | b'a' | b'e' => {
                    let unseen = pages.total - pages.seen;
                    console::complain(&format!("not yet: {unseen} lines were not shown, G shows them\n"));
                    continue;
                }
                _ => {
                    console::complain("space shows more, n says no\n");
                    continue;
                }
            }
            return Ok(None);
        }
    }
}

/// Which rows of a question are on the screen.
struct QuestionPages {
    start: usize,
    end: usize,
    /// So many were shown.
    seen: usize,
    page: usize,
    total: usize,
}

impl QuestionPages {
    fn forward(&mut self, rows: usize) {
        self.start = self.end;
        self.end = self.start.saturating_add(rows).min(self.total);
    }

    fn back(&mut self) {
        self.start = self.start.saturating_sub(self.page);
        self.end = (self.start + self.page).min(self.total);
    }

    fn mark(&self) -> String {
        let Self { start, end, total, .. } = self;
        format!("lines {}–{end} of {total}  space more  b back  G all  n no  q stop", start + 1)
    }
}

/// The keys in rows that are never wider than the terminal.
fn key_rows(keys: &[AnswerKey], styles: Styles, columns: usize) -> Vec<String> {
    let words: Vec<String> = keys.iter().map(|AnswerKey { key, words }| format!("{key} {words}")).collect();
    let painted = |row: String| {
        let key = |word: &str| match word.split_once(' ') {
            Some((key, words)) => format!("{} {words}", styles.paint(Style::Bold, key)),
            None => word.to_owned(),
        };
        row.split("  ").map(key).collect::<Vec<_>>().join("  ")
    };
    wrap_words(&words, "  ", columns).into_iter().map(painted).collect()
}

/// A row of a question as it looks.
pub fn painted(styles: Styles, role: LineRole, row: &str) -> String {
    let style = match role {
        LineRole::Plain => return row.to_owned(),
        LineRole::Heading => Style::Bold,
        LineRole::Added => Style::Added,
        LineRole::Removed => Style::Removed,
        LineRole::Quoted => Style::Dim,
    };
    styles.paint(style, row)
}
