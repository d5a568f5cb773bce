//! What shells offer for a word that is being typed, asked of the shells themselves.

use std::fs;
use std::path::Path;

use parts::{command, is_wanted, printed, program, workplace};

const TYPED: [(&str, &str); 4] = [
    ("llm-do run --mo", "--model"),
    ("llm-do p --fi", "--file"),
    ("llm-do p -m anthropic:claude-haiku-4", "anthropic:claude-haiku-4-5"),
    ("llm-do p -a ma", "main"),
];

fn shell(name: &str, place: &Path) -> std::process::Command {
    fs::create_dir(place.join("p")).unwrap();
    fs::write(place.join("p/main.worker"), "---\nname: main\n---\nAnswer.\n").unwrap();
    let directory = program().parent().unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    let mut command = command(Path::new(name), place);
    command.env("PATH", path).env("ANTHROPIC_API_KEY", "k").env("TERM", "xterm");
    command
}

#[test]
fn fish_completes_flags_models_and_agents() {
    if !is_wanted("fish") {
        return;
    }
    let place = workplace();
    let asked: Vec<String> = TYPED.iter().map(|(line, _)| format!("complete -C '{line}'")).collect();
    let script = format!("llm-do completions fish | source; {}", asked.join("; "));
    let said = printed(shell("fish", place.path()).args(["--no-config", "-c", &script]));
    let words: Vec<&str> = said.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(words, TYPED.map(|(_, word)| word), "{said}");
}

/// A zsh types into another one, presses Tab, and has it show its line.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty -b shell zsh -f -i
until_seen() {
    local out= line= tries=0
    until [[ $out == *"$1"* ]] || (( ++tries > 400 )); do
        zpty -r -t shell line && out+=$line || sleep 0.02
    done
    [[ $out == *"$1"* ]] || { print -r -- "waited in vain for $1: ${(V)out}"; zpty -d shell; exit 1 }
}
zpty -w shell "autoload -Uz compinit; compinit -u -D; source <(llm-do completions zsh); bindkey '^I' complete-word"
zpty -w shell "show() { print -r -- \"<\$BUFFER>\"; zle kill-whole-line }; zle -N show; bindkey '^X' show; print REA''DY"
until_seen READY
while read -r line; read -r completed; do
    zpty -w -n shell "$line"$'\t'$'\x18'
    until_seen "<$completed >"
done
zpty -d shell
print all
"#;

#[test]
fn zsh_completes_flags_models_and_agents() {
    if !is_wanted("zsh") {
        return;
    }
    let place = workplace();
    let completed = |line: &str, word: &str| format!("{} {word}", line.rsplit_once(' ').unwrap().0);
    let lines: Vec<String> = TYPED.iter().map(|(line, word)| format!("{line}\n{}\n", completed(line, word))).collect();
    fs::write(place.path().join("lines"), lines.concat()).unwrap();
    let mut zsh = shell("zsh", place.path());
    zsh.args(["-f", "-c", ZSH]).stdin(fs::File::open(place.path().join("lines")).unwrap());
    assert_eq!(printed(&mut zsh), "all\n");
}
