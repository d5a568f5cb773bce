//! Rules, several shells in one tool, and what a person is told and may answer.

use std::sync::{Arc, Mutex};

use crate::world::{World, is_offered, part, rule, rules};
use llm_do::BoxFuture;
use llm_do::tools::approval::{Answer, ApprovalRequest, Approvals, Approver, Memory, Rule};
use llm_do::tools::fence::Fencing;
use llm_do::tools::source::{Grammar, ShellRule};

/// Gives the same answer each time and keeps the questions.
#[derive(Clone)]
struct Person(Answer, Arc<Mutex<Vec<ApprovalRequest>>>);

impl Approver for Person {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Answer> {
        self.1.lock().unwrap().push(request.clone());
        Box::pin(async { self.0.clone() })
    }
}

impl Person {
    fn answering(answer: Answer) -> Self {
        Self(answer, Arc::default())
    }

    fn questions(&self) -> usize {
        self.1.lock().unwrap().len()
    }
}

fn asking() -> World {
    let mut date = rule("touch", Rule::Ask);
    date.approval_required_if_args = Vec::new();
    World::new(Fencing::WhereOffered).with(vec![rules(vec![date, rule("mkdir", Rule::Ask)])])
}

#[test]
fn a_question_shows_the_whole_command_and_where_it_runs() {
    let (world, person) = (asking(), Person::answering(Answer::Once));
    let long = "x".repeat(200);
    world.session(Approvals::ask(person.clone())).attempt(&format!("touch {long} 'a b' --no-create"), 5).ran();
    let questions = person.1.lock().unwrap();
    let preview = questions[0].question.preview.as_ref().unwrap();
    let directory = world.inside().canonicalize().unwrap();
    let expected = format!(
        "command   touch {long} 'a b' --no-create\nprogram   /usr/bin/touch\ndirectory {}\n",
        directory.display()
    );
    assert!(preview.starts_with(&expected), "{preview}");
    let covers = questions[0].question.covers.as_ref().unwrap();
    assert_eq!(covers.tool, format!("any command that begins with `touch`, in {}", directory.display()));
    assert_eq!(questions[0].memory, Memory::CallOrTool);
}

#[test]
fn an_answer_for_the_call_covers_the_same_words_however_they_are_written() {
    let (world, person) = (asking(), Person::answering(Answer::CallForSession));
    let session = world.session(Approvals::ask(person.clone()));
    for (command, timeout) in [("touch new", 5), ("touch   'new'", 5), ("\"touch\" new", 9)] {
        session.attempt(command, timeout).ran();
    }
    assert_eq!(person.questions(), 1);
    session.attempt("touch other", 5).ran();
    assert_eq!(person.questions(), 2);
}

#[test]
fn an_answer_for_the_tool_covers_the_rule_that_asked() {
    let (world, person) = (asking(), Person::answering(Answer::ToolForSession));
    let session = world.session(Approvals::ask(person.clone()));
    session.attempt("touch one", 5).ran();
    session.attempt("touch two", 5).ran();
    assert_eq!(person.questions(), 1);
    session.attempt("mkdir three", 5).ran();
    assert_eq!(person.questions(), 2);
}

#[test]
fn an_answer_about_a_secret_may_be_remembered_and_about_protected_files_not() {
    let person = Person::answering(Answer::CallForSession);
    let world = World::new(Fencing::WhereOffered)
        .with(vec![part("shell_readonly", Grammar::ReadOnly), part("shell_file_ops", Grammar::FileOps)]);
    world.file("inside/.env", "KEY=1\n");
    let session = world.session(Approvals::ask(person.clone()));
    session.attempt("cat .env", 5).ran();
    session.attempt("cat .env", 5).ran();
    assert_eq!(person.questions(), 1);
    session.attempt("mv a.txt x.worker", 5).ran();
    session.attempt("mv b.txt y.worker", 5).ran();
    assert_eq!(person.questions(), 3);
    let asked = person.1.lock().unwrap();
    assert_eq!([asked[0].memory, asked[2].memory], [Memory::CallOnly, Memory::Nothing]);
}

#[test]
fn edited_commands_are_judged_again() {
    let edited = llm_do::message::RawJson::parse(r#"{"command": "rm out"}"#).unwrap();
    let world = asking();
    let session = world.session(Approvals::ask(Person::answering(Answer::Edited(edited))));
    let reason = session.attempt("touch new", 5).stopped();
    assert!(reason.contains("`rm` is not among the commands"), "{reason}");
    assert!(world.path("inside/out").exists());
}

#[test]
fn several_shells_are_one_tool_and_the_first_rule_that_matches_decides() {
    if !is_offered() {
        return;
    }
    let blocks_cat =
        rules(vec![rule("cat b.txt", Rule::Block), rule("git status", Rule::Block), rule("date", Rule::Allow)]);
    let world =
        World::new(Fencing::WhereOffered).with(vec![blocks_cat.clone(), part("shell_readonly", Grammar::ReadOnly)]);
    assert!(world.approved("cat b.txt").stopped().contains("blocked by a rule"));
    assert!(world.approved("git status").stopped().contains("blocked by a rule"));
    assert_eq!(world.attempt("cat a.txt").ran().exit_code, 0);
    assert_eq!(world.attempt("date").ran().exit_code, 0);
    let reason = world.approved("whoami").stopped();
    assert!(reason.contains("`whoami` is not among the commands here; commands: cat, date, find, "), "{reason}");
    let reversed = World::new(Fencing::WhereOffered).with(vec![part("shell_readonly", Grammar::ReadOnly), blocks_cat]);
    assert_eq!(reversed.attempt("cat b.txt").ran().exit_code, 0);
}

#[test]
fn a_default_decides_what_no_rule_does() {
    if !is_offered() {
        return;
    }
    for (default, command, stopped) in [
        (Rule::Ask, "whoami", Some("needs an approval")),
        (Rule::Block, "whoami", Some("not among the commands")),
        (Rule::Allow, "whoami", Some("needs an approval")),
        (Rule::Ask, "bash -c id", Some("needs an approval")),
        (Rule::Ask, "ls", None),
    ] {
        let grammar = Grammar::Rules { rules: vec![rule("ls", Rule::Allow)], default: Some(default) };
        let world = World::new(Fencing::WhereOffered).with(vec![part("mine", grammar)]);
        match stopped {
            Some(words) => {
                let reason = world.attempt(command).stopped();
                assert!(reason.contains(words), "{command}: {reason}");
            }
            None => assert_eq!(world.attempt(command).ran().exit_code, 0, "{command}"),
        }
    }
}

#[test]
fn of_several_shells_the_default_that_was_written_decides() {
    if !is_offered() {
        return;
    }
    let with = |default| part("mine", Grammar::Rules { rules: vec![rule("ls", Rule::Allow)], default });
    for (first, second, stopped) in [
        (Some(Rule::Ask), None, "needs an approval"),
        (None, Some(Rule::Ask), "needs an approval"),
        (None, None, "not among the commands"),
        (Some(Rule::Block), None, "not among the commands"),
    ] {
        let world = World::new(Fencing::WhereOffered).with(vec![with(first), with(second)]);
        let reason = world.attempt("whoami").stopped();
        assert!(reason.contains(stopped), "{first:?} {second:?}: {reason}");
    }
}

#[test]
fn words_turn_allow_into_ask() {
    if !is_offered() {
        return;
    }
    let careful = ShellRule { approval_required_if_args: vec!["-p".into()], ..rule("mkdir", Rule::Allow) };
    let world = World::new(Fencing::WhereOffered).with(vec![rules(vec![careful])]);
    assert_eq!(world.attempt("mkdir one").ran().exit_code, 0);
    world.attempt("mkdir -p two/three").asks();
    world.attempt("mkdir '-p' two/three").asks();
}

#[test]
fn the_agents_rule_tightens_and_loosens() {
    let mut shell = part("shell_readonly", Grammar::ReadOnly);
    shell.variants = vec![Rule::Ask];
    World::new(Fencing::WhereOffered).with(vec![shell.clone()]).attempt("cat a.txt").asks();
    shell.variants = vec![Rule::Block];
    let reason = World::new(Fencing::WhereOffered).with(vec![shell]).approved("cat a.txt").stopped();
    assert!(reason.contains("blocked by "), "{reason}");
}

/// Says yes, and makes the repository more dangerous while it is asked.
struct Meddler(std::path::PathBuf, Arc<Mutex<Vec<String>>>);

impl Approver for Meddler {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Answer> {
        let mut asked = self.1.lock().unwrap();
        let text = format!("[filter \"f{}\"]\n\tclean = ./evil\n", asked.len().min(1));
        std::fs::write(&self.0, text).unwrap();
        asked.push(request.question.reason.clone());
        Box::pin(async { Answer::Once })
    }
}

#[test]
fn an_answer_is_for_what_was_shown() {
    let world = World::new(Fencing::WhereOffered);
    world.file("inside/.git/config", "[filter \"first\"]\n\tclean = ./evil\n");
    let asked = Arc::default();
    let meddler = Meddler(world.path("inside/.git/config"), Arc::clone(&asked));
    world.session(Approvals::ask(meddler)).attempt("git status", 5);
    let asked = asked.lock().unwrap();
    assert!(
        asked.len() > 1 && asked[0].contains("`filter.first.clean`") && asked[1].contains("`filter.f0.clean`"),
        "{asked:?}"
    );
}
