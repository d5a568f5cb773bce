//! What to say where a name means nothing: which one was probably meant, and what there is.

/// Longer lists are not read.
const MOST_LISTED: usize = 12;

/// The name nearest to a misspelled one.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// "did you mean `x`? agents: x, y": the nearest name first, then what there is, since the nearest may not be the one.
pub fn instead<'a>(name: &str, what: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let names = sorted(known);
    instead_among(name, what, names.iter().copied(), names.iter().copied())
}

/// The same where some spellings are understood and not listed.
pub(crate) fn instead_among<'a>(
    name: &str,
    what: &str,
    spellings: impl IntoIterator<Item = &'a str>,
    listed: impl IntoIterator<Item = &'a str>,
) -> String {
    let listed = sorted(listed);
    let all = there_are(what, listed.iter().copied());
    match nearest(name, spellings) {
        None => all,
        Some(near) if listed == [near] => format!("did you mean `{near}`?"),
        Some(near) => format!("did you mean `{near}`? {all}"),
    }
}

/// "agents: x, y", as far as it is read.
pub(crate) fn there_are<'a>(what: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match listed(known) {
        None => format!("there are no {what}"),
        Some(list) => format!("{what}: {list}"),
    }
}

/// "x, y", each once, and how many more there are; `None` if there are none.
pub fn listed<'a>(known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let names = sorted(known);
    let (shown, more) = names.split_at(names.len().min(MOST_LISTED));
    let list = shown.join(", ");
    match (shown.is_empty(), more.len()) {
        (true, _) => None,
        (false, 0) => Some(list),
        (false, more) => Some(format!("{list}, and {more} more")),
    }
}

fn sorted<'a>(known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = known.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_comes_first_and_then_what_there_is() {
        let known = ["toolsets", "model", "name", "model"];
        for (name, known, expected) in [
            ("toolset", known.as_slice(), "did you mean `toolsets`? keys: model, name, toolsets"),
            ("Modle", &known, "did you mean `model`? keys: model, name, toolsets"),
            ("zzz", &known, "keys: model, name, toolsets"),
            ("modle", &["model"], "did you mean `model`?"),
            ("zzz", &["model"], "keys: model"),
            ("zzz", &[], "there are no keys"),
        ] {
            assert_eq!(instead(name, "keys", known.iter().copied()), expected);
        }
    }

    #[test]
    fn of_many_names_the_first_are_listed_and_the_others_counted() {
        let names: Vec<String> = (10..40).map(|number| format!("agent-{number}")).collect();
        let known = || names.iter().map(String::as_str);
        let first = names[..12].join(", ");
        assert_eq!(listed(known().take(12)), Some(first.clone()));
        assert_eq!(listed(known()), Some(format!("{first}, and 18 more")));
        let said = instead("agent-399", "agents", known());
        assert_eq!(said, format!("did you mean `agent-39`? agents: {first}, and 18 more"));
    }
}
