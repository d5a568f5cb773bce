//! Questions to the person at the terminal: they go to stderr, the answers come from the controlling terminal.

use std::io;

use llm_do::approval::Memory;
use llm_do::{Answer, ApprovalRequest, RawJson};

use crate::console;
use crate::terminal::attention::QuestionStage;
use crate::terminal::editor::{self, Editor};
use crate::terminal::style::{Style, Styles, wrap};
use crate::terminal::{Terminal, TerminalKeys, TerminalSize};
use llm_do_launch::question::{self, AnswerChoice, LineRole, QuestionLine, QuestionNumber};

/// The person at the terminal.
pub struct Asking {
    pub terminal: Terminal,
    pub editor: Editor,
    pub styles: Styles,
    /// How many questions there were.
    pub count: usize,
    /// The number of the last one that is known of.
    pub last: usize,
}

/// What was pressed at the end of a question.
enum QuestionChoice {
    Answer(Answer),
    Edit,
    Reason,
}

impl Asking {
    /// Asks until there is an answer; a terminal that is gone gives none. Dropped, it leaves the terminal as it was.
    pub async fn ask(&mut self, request: &ApprovalRequest, others: usize) -> Option<Answer> {
        self.count += 1;
        // One of several that stand open together, also if it is the last of them.
        let is_one_of_several = others > 0 || self.count <= self.last;
        self.last = self.last.max(self.count + others);
        let number = QuestionNumber { number: self.count, of: is_one_of_several.then_some(self.last) };
        let answer = self.answer(request, number).await;
        let answer =
            answer.map_err(|error| console::complain(&format!("the terminal cannot be read: {error}\n"))).ok()?;
        console::complain(&format!("  {}\n", self.styles.paint(Style::Dim, said(&answer))));
        Some(answer)
    }

    async fn answer(&self, request: &ApprovalRequest, number: QuestionNumber) -> io::Result<Answer> {
        loop {
            match self.choice(request, number).await? {
                QuestionChoice::Answer(answer) => return Ok(answer),
                QuestionChoice::Reason => {
                    let question = "why not? (the model reads it; Enter for no reason) ";
                    let reason = self.terminal.line(question).await?.filter(|reason| !reason.is_empty());
                    return Ok(Answer::Refuse { reason });
                }
                QuestionChoice::Edit => match edit_arguments(&self.editor, &self.terminal, &request.arguments).await {
                    Ok(arguments) => return Ok(Answer::Edited(arguments)),
                    Err(reason) => console::complain(&format!("not edited: {reason}\n")),
                },
            }
        }
    }

    async fn choice(&self, request: &ApprovalRequest, number: QuestionNumber) -> io::Result<QuestionChoice> {
        let mut keys = self.terminal.keys()?;
        let TerminalSize { rows, columns } = self.terminal.size();
        let lines = question::lines(request, number);
        // Wrapped first, painted then: no row may end within a control code.
        let rows_of = |line: &QuestionLine| {
            wrap(&line.text, columns).into_iter().map(|row| painted(self.styles, line.role, &row)).collect()
        };
        let shown: Vec<String> = lines.iter().flat_map(|line| -> Vec<String> { rows_of(line) }).collect();
        if let Some(answer) = show(&mut keys, &shown, rows).await? {
            return Ok(answer);
        }
        let key_line = |choice: &AnswerChoice| {
            format!("  {} {}\n", self.styles.paint(Style::Bold, &choice.key.to_string()), choice.words)
        };
        let help: String = question::choices(request).iter().map(key_line).collect();
        keys.show(&help, QuestionStage::Answer).await;
        loop {
            let key = keys.next().await?;
            match key.to_ascii_lowercase() {
                b'y' => return Ok(QuestionChoice::Answer(Answer::Once)),
                b's' if request.memory != Memory::Nothing => return Ok(QuestionChoice::Answer(Answer::CallForSession)),
                b't' if request.memory == Memory::CallOrTool => {
                    return Ok(QuestionChoice::Answer(Answer::ToolForSession));
                }
                b'e' => return Ok(QuestionChoice::Edit),
                key => match refusal(key) {
                    Some(choice) => return Ok(choice),
                    None => console::complain(BELL),
                },
            }
        }
    }
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

/// Other arguments, as a person writes them in their editor.
pub async fn edit_arguments(editor: &Editor, terminal: &Terminal, arguments: &RawJson) -> Result<RawJson, String> {
    let text = editor::edit(editor, terminal, &arguments.indented()).await?;
    let edited = RawJson::parse(&text).map_err(|error| format!("that is not JSON: {error}"))?;
    if !edited.get().trim_start().starts_with('{') {
        return Err("arguments are a JSON object".to_owned());
    }
    let same = llm_do::approval::canonical(&edited) == llm_do::approval::canonical(arguments);
    if same { Err("nothing was changed".to_owned()) } else { Ok(edited) }
}

/// For keys that mean nothing here.
const BELL: &str = "\u{7}";

/// Keys that say no; they work before everything was read.
fn refusal(key: u8) -> Option<QuestionChoice> {
    match key {
        b'n' | b'd' => Some(QuestionChoice::Reason),
        b'q' => Some(QuestionChoice::Answer(Answer::EndRun)),
        _ => None,
    }
}

/// Shows a question, page by page if it is longer than the screen: a person can say yes only after they were shown the end.
async fn show(keys: &mut TerminalKeys<'_>, shown: &[String], rows: usize) -> io::Result<Option<QuestionChoice>> {
    /// For the keys, and a line to stand on.
    const KEPT: usize = 8;
    if shown.len() + KEPT <= rows {
        console::complain(&format!("{}\n", shown.join("\n")));
        return Ok(None);
    }
    let page = rows.saturating_sub(2).max(1);
    for (index, rows) in shown.chunks(page).enumerate() {
        console::complain(&format!("{}\n", rows.join("\n")));
        let seen = (index * page + rows.len()).min(shown.len());
        if seen == shown.len() {
            break;
        }
        let mark = format!("-- {seen} of {} lines: space for more, n no, q end the run --", shown.len());
        keys.show(&mark, QuestionStage::Page).await;
        let key = more(keys).await?;
        console::complain("\r\u{1b}[K");
        if key.is_some() {
            return Ok(key);
        }
    }
    Ok(None)
}

async fn more(keys: &mut TerminalKeys<'_>) -> io::Result<Option<QuestionChoice>> {
    loop {
        match keys.next().await?.to_ascii_lowercase() {
            b' ' | b'\n' | b'\r' => return Ok(None),
            key => match refusal(key) {
                Some(choice) => return Ok(Some(choice)),
                None => console::complain(BELL),
            },
        }
    }
}

fn said(answer: &Answer) -> &'static str {
    match answer {
        Answer::Once => "approved once",
        Answer::CallForSession => "approved, this exact call for the session",
        Answer::ToolForSession => "approved, this tool for the session",
        Answer::Edited(_) => "approved with other arguments",
        Answer::Refuse { .. } => "refused",
        Answer::EndRun => "refused, the run ends",
        Answer::Later => "left for somebody else",
    }
}
