//! Options as programs read them: letters together, names cut short, values behind `=`. What a rule says of an option
//! holds for every spelling of it; where spellings of two options look alike, both are meant.

/// Whether an option, or any other word, is given by one of the words.
pub(crate) fn is_given(argument: &str, words: &[&str]) -> bool {
    if words.iter().any(|word| is_spelled(argument, word)) {
        return true;
    }
    // The letters of `-rf` may come in any order, and in several words.
    let Some(letters) = letters(argument) else { return false };
    let given: Vec<&str> = words.iter().filter_map(|word| self::letters(word)).collect();
    letters.chars().all(|letter| given.iter().any(|given| given.contains(letter)))
}

/// Whether an option is given that is not among these. Only whole names and single letters are known: `--verb` for
/// `--verbose` is another one.
pub(crate) fn has_other(allowed: &[String], words: &[&str]) -> bool {
    let is_listed = |option: &str| allowed.iter().any(|allowed| allowed == option);
    let is_known = |word: &str| match letters(word) {
        Some(letters) => letters.chars().all(|letter| is_listed(&format!("-{letter}"))),
        None => is_listed(word.split_once('=').map_or(word, |(name, _)| name)),
    };
    let is_option = |word: &&&str| word.len() > 1 && word.starts_with('-') && **word != "--";
    words.iter().filter(is_option).any(|word| !is_listed(word) && !is_known(word))
}

/// Whether a word is the argument, with a value, cut short, or with another number of dashes.
fn is_spelled(argument: &str, word: &str) -> bool {
    let given = word.split_once('=').map_or(word, |(name, _)| name);
    if given == argument {
        return true;
    }
    match (argument.strip_prefix("--"), given.strip_prefix("--")) {
        (Some(name), Some(given)) => !given.is_empty() && name.starts_with(given),
        (Some(name), None) => given.strip_prefix('-') == Some(name),
        (None, Some(given)) => letters(argument) == Some(given),
        (None, None) => false,
    }
}

/// What stands behind a single dash.
fn letters(word: &str) -> Option<&str> {
    word.strip_prefix('-').filter(|rest| !rest.is_empty() && !rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_found_however_it_is_spelled() {
        for (argument, words, expected) in [
            ("-p", "-p", true),
            ("-p", "-pv a", true),
            ("-p", "-vp a", true),
            ("-p", "-m755 -vp a", true),
            ("-p", "-m755 a", false),
            ("-p", "p", false),
            ("-p", "--parents", false),
            ("-p", "-", false),
            ("--force", "--force", true),
            ("--force", "--force=yes", true),
            ("--force", "--forc", true),
            ("--force", "--f", true),
            ("--force", "-force", true),
            ("--force", "--forceful", false),
            ("--force", "--", false),
            ("--force", "force", false),
            ("--force", "-f", false),
            ("-rf", "-rf x", true),
            ("-rf", "-fr x", true),
            ("-rf", "-r -f x", true),
            ("-rf", "-r x", false),
            ("-exec", "--exec", true),
            ("origin", "origin", true),
            ("of", "of=x", true),
            ("origin", "original", false),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            assert_eq!(is_given(argument, &words), expected, "{argument}: {words:?}");
        }
    }

    #[test]
    fn only_listed_options_are_known() {
        for (allowed, words, expected) in [
            ("-v", "a b", false),
            ("-v", "-v a", false),
            ("-v", "-vv a", false),
            ("-v", "-vp a", true),
            ("-v", "--parents a", true),
            ("-v", "-f a", true),
            ("-v", "-- -f", true),
            ("-v", "-- f", false),
            ("-v", "-", false),
            ("--mode -v", "--mode=755 -v", false),
            ("--mode", "--mod=755", true),
            ("-m755", "-m755", false),
            ("-name", "-name", false),
            ("-m", "-m755", true),
            ("", "-x", true),
        ] {
            let allowed: Vec<String> = allowed.split_whitespace().map(str::to_owned).collect();
            let words: Vec<&str> = words.split(' ').collect();
            assert_eq!(has_other(&allowed, &words), expected, "{allowed:?}: {words:?}");
        }
    }
}
