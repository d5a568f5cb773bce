//! `project.json` with a toolset more or less, and every other byte as it was. The text is JSON already. Pure.

use std::ops::Range;

/// A key of an object, with where it and its value stand.
struct Member {
    key: String,
    start: usize,
    value: Range<usize>,
}

/// With a toolset of this name, behind the others.
pub fn with_toolset(text: &str, name: &str, definition: &str) -> Option<String> {
    let top = members(text, text.find('{')?)?;
    let entry = format!("\"{name}\": {definition}");
    let Some(toolsets) = top.iter().find(|member| member.key == "toolsets") else {
        let last = top.last()?;
        let blank = blank_before(text, last.start);
        // The blank tells later that all of it was added.
        let added = if blank.contains('\n') {
            format!(",{blank}\"toolsets\": {{{blank}  {entry}{blank}}}")
        } else {
            format!(",{blank}\"toolsets\": {{ {entry} }}")
        };
        return Some(spliced(text, last.value.end..last.value.end, &added));
    };
    let inside = members(text, toolsets.value.start)?;
    Some(match inside.last() {
        Some(last) => {
            let added = format!(",{}{entry}", blank_before(text, last.start));
            spliced(text, last.value.end..last.value.end, &added)
        }
        None => spliced(text, toolsets.value.start + 1..toolsets.value.start + 1, &entry),
    })
}

/// Without the toolset of this name.
pub fn without_toolset(text: &str, name: &str) -> Option<String> {
    let top = members(text, text.find('{')?)?;
    let at = top.iter().position(|member| member.key == "toolsets")?;
    let inside = members(text, top[at].value.start)?;
    let place = inside.iter().position(|member| member.key == name)?;
    let own = &inside[place];
    let is_added = own.start > top[at].value.start + 1;
    let range = match (inside.len(), place) {
        (1, _) if is_added && at > 0 => top[at - 1].value.end..top[at].value.end,
        (1, _) => own.start..own.value.end,
        (_, 0) => own.start..inside[1].start,
        (_, place) => inside[place - 1].value.end..own.value.end,
    };
    Some(spliced(text, range, ""))
}

/// With this mode of a toolset.
pub fn with_mode(text: &str, name: &str, mode: &str) -> Option<String> {
    let top = members(text, text.find('{')?)?;
    let toolsets = top.iter().find(|member| member.key == "toolsets")?;
    let inside = members(text, toolsets.value.start)?;
    let own = members(text, inside.iter().find(|member| member.key == name)?.value.start)?;
    match own.iter().find(|member| member.key == "mode") {
        Some(written) => Some(spliced(text, written.value.clone(), &format!("\"{mode}\""))),
        None => {
            let end = own.last()?.value.end;
            Some(spliced(text, end..end, &format!(", \"mode\": \"{mode}\"")))
        }
    }
}

fn spliced(text: &str, range: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}

/// The blanks before a key.
fn blank_before(text: &str, start: usize) -> &str {
    let before = text[..start].trim_end();
    &text[before.len()..start]
}

/// The members of the object that begins here.
fn members(text: &str, start: usize) -> Option<Vec<Member>> {
    let bytes = text.as_bytes();
    (bytes.get(start) == Some(&b'{')).then_some(())?;
    let (mut found, mut at) = (Vec::new(), start + 1);
    loop {
        at = behind_blanks(bytes, at);
        match bytes.get(at)? {
            b'}' => return Some(found),
            b',' => at += 1,
            b'"' => {
                let key_end = behind_text(bytes, at)?;
                let key = serde_json::from_str(&text[at..key_end]).ok()?;
                let colon = behind_blanks(bytes, key_end);
                (bytes.get(colon) == Some(&b':')).then_some(())?;
                let value = behind_blanks(bytes, colon + 1);
                let end = behind_value(bytes, value)?;
                found.push(Member { key, start: at, value: value..end });
                at = end;
            }
            _ => return None,
        }
    }
}

fn behind_blanks(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

fn behind_text(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn behind_value(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => at = behind_text(bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' | b',' if depth == 0 => return Some(at),
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            byte if depth == 0 && byte.is_ascii_whitespace() => return Some(at),
            _ => at += 1,
        }
        if depth == 0 && matches!(bytes.get(at - 1), Some(b'"' | b'}' | b']')) {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: &str = r#"{"python": "s.py:s", "mode": "code"}"#;

    #[test]
    fn a_toolset_is_added_and_taken_away_without_a_trace() {
        for text in [
            "{\n  \"version\": 1,\n  \"entry\": {\"agent\": \"main\"}\n}\n",
            "{\"version\":1,\"entry\":{}}",
            "{\"version\": 1, \"toolsets\": {}, \"entry\": {}}",
            "{\n\t\"version\": 1,\n\t\"toolsets\": {\n\t\t\"sh\": {\"shell\": {\"rules\": [{\"pattern\": \"a}\\\"b\"}]}}\n\t},\n\t\"entry\": {}\n}",
            "{ \"toolsets\": { \"a\": {\"use\": \"b\"}, \"c\": {\"use\": \"d\"} }, \"version\": 1 }",
        ] {
            let with = with_toolset(text, "s", DEFINITION).unwrap();
            let value: serde_json::Value =
                serde_json::from_str(&with).unwrap_or_else(|error| panic!("{error}: {with}"));
            assert_eq!(value["toolsets"]["s"]["mode"], "code", "{with}");
            assert_eq!(without_toolset(&with, "s").as_deref(), Some(text), "{with}");
            let shadow = with_mode(&with, "s", "shadow").unwrap();
            assert_eq!(with_mode(&shadow, "s", "code"), Some(with));
        }
        let text = "{\n  \"version\": 1,\n  \"entry\": {}\n}\n";
        let expected = "{\n  \"version\": 1,\n  \"entry\": {},\n  \"toolsets\": {\n    \"s\": {\"python\": \"s.py:s\", \"mode\": \"code\"}\n  }\n}\n";
        assert_eq!(with_toolset(text, "s", DEFINITION).as_deref(), Some(expected));
    }

    #[test]
    fn any_toolset_can_be_taken_away_and_a_mode_be_added() {
        let text = "{\"toolsets\": {\"a\": {\"python\": \"a.py:a\"}, \"b\": {\"use\": \"x\"}}, \"version\": 1}";
        assert_eq!(
            without_toolset(text, "a").as_deref(),
            Some("{\"toolsets\": {\"b\": {\"use\": \"x\"}}, \"version\": 1}")
        );
        let expected = "{\"toolsets\": {\"a\": {\"python\": \"a.py:a\", \"mode\": \"code\"}, \"b\": {\"use\": \"x\"}}, \"version\": 1}";
        assert_eq!(with_mode(text, "a", "code").as_deref(), Some(expected));
        assert_eq!(without_toolset(text, "c"), None);
        assert_eq!(with_mode(text, "c", "code"), None);
    }
}
