//! Lines of code with a few colours: words of the language, texts, comments. A language is a row; what is in no row has no
//! colours. Pure.

use super::look::Appearance;

/// What is known of a language.
#[derive(Debug)]
pub struct CodeLanguage {
    /// As fences call it.
    names: &'static [&'static str],
    /// What begins a comment to the end of the line.
    comments: &'static [&'static str],
    /// What encloses a comment of many lines.
    block: Option<(&'static str, &'static str)>,
    /// What encloses a text within a line.
    quotes: &'static str,
    /// What encloses a text of many lines.
    long_quotes: &'static [&'static str],
    keywords: &'static [&'static str],
}

const C_BLOCK: Option<(&str, &str)> = Some(("/*", "*/"));

/// Each language in a row: names, comments, comments of many lines, quotes, those of many lines, keywords.
#[rustfmt::skip]
const LANGUAGES: &[CodeLanguage] = &[
    row(&["rust", "rs"], &["//"], C_BLOCK, "\"", &[], &["as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern", "false", "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self", "Self", "static", "struct", "super", "trait", "true", "type", "unsafe", "use", "where", "while"]),
    row(&["python", "py"], &["#"], None, "\"'", &["\"\"\"", "'''"], &["False", "None", "True", "and", "as", "assert", "async", "await", "break", "case", "class", "continue", "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "match", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield"]),
    row(&["javascript", "js", "jsx", "typescript", "ts", "tsx"], &["//"], C_BLOCK, "\"'", &["`"], &["abstract", "as", "async", "await", "break", "case", "catch", "class", "const", "continue", "default", "delete", "do", "else", "enum", "export", "extends", "false", "finally", "for", "from", "function", "if", "implements", "import", "in", "instanceof", "interface", "let", "new", "null", "of", "private", "protected", "public", "readonly", "return", "static", "super", "switch", "this", "throw", "true", "try", "type", "typeof", "undefined", "var", "void", "while", "yield"]),
    row(&["go", "golang"], &["//"], C_BLOCK, "\"'", &["`"], &["break", "case", "chan", "const", "continue", "default", "defer", "else", "fallthrough", "false", "for", "func", "go", "goto", "if", "import", "interface", "map", "nil", "package", "range", "return", "select", "struct", "switch", "true", "type", "var"]),
    row(&["c", "h", "cpp", "c++", "cc", "hpp"], &["//"], C_BLOCK, "\"'", &[], &["auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr", "continue", "default", "delete", "do", "double", "else", "enum", "extern", "false", "float", "for", "goto", "if", "inline", "int", "long", "namespace", "new", "nullptr", "private", "protected", "public", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "true", "try", "typedef", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while"]),
    row(&["java", "kotlin", "kt", "scala"], &["//"], C_BLOCK, "\"'", &["\"\"\""], &["abstract", "boolean", "break", "case", "catch", "char", "class", "continue", "data", "def", "default", "do", "double", "else", "enum", "extends", "false", "final", "finally", "float", "for", "fun", "if", "implements", "import", "in", "instanceof", "int", "interface", "is", "long", "new", "null", "object", "override", "package", "private", "protected", "public", "record", "return", "static", "super", "switch", "this", "throw", "throws", "trait", "true", "try", "val", "var", "void", "when", "while"]),
    row(&["csharp", "cs", "c#"], &["//"], C_BLOCK, "\"'", &[], &["abstract", "as", "async", "await", "base", "bool", "break", "case", "catch", "char", "class", "const", "continue", "decimal", "default", "do", "double", "else", "enum", "false", "finally", "float", "for", "foreach", "if", "in", "int", "interface", "internal", "is", "long", "namespace", "new", "null", "object", "out", "override", "private", "protected", "public", "readonly", "record", "ref", "return", "sealed", "static", "string", "struct", "switch", "this", "throw", "true", "try", "using", "var", "virtual", "void", "while", "yield"]),
    row(&["swift"], &["//"], C_BLOCK, "\"", &["\"\"\""], &["as", "break", "case", "catch", "class", "continue", "default", "defer", "do", "else", "enum", "extension", "false", "for", "func", "guard", "if", "import", "in", "init", "is", "let", "nil", "private", "protocol", "public", "return", "self", "static", "struct", "super", "switch", "throw", "throws", "true", "try", "var", "where", "while"]),
    row(&["ruby", "rb"], &["#"], None, "\"'", &[], &["and", "begin", "break", "case", "class", "def", "do", "else", "elsif", "end", "ensure", "false", "for", "if", "in", "module", "next", "nil", "not", "or", "require", "rescue", "return", "self", "super", "then", "true", "unless", "until", "when", "while", "yield"]),
    row(&["php"], &["//", "#"], C_BLOCK, "\"'", &[], &["abstract", "array", "as", "break", "case", "catch", "class", "const", "continue", "default", "do", "echo", "else", "elseif", "extends", "false", "final", "fn", "for", "foreach", "function", "if", "implements", "interface", "match", "namespace", "new", "null", "private", "protected", "public", "return", "static", "switch", "this", "throw", "true", "try", "use", "var", "while"]),
    row(&["sh", "bash", "zsh", "shell", "console", "shell-session"], &["#"], None, "\"'", &[], &["case", "do", "done", "elif", "else", "esac", "exit", "export", "fi", "for", "function", "if", "in", "local", "return", "set", "then", "until", "while"]),
    row(&["fish"], &["#"], None, "\"'", &[], &["and", "begin", "case", "else", "end", "for", "function", "if", "in", "not", "or", "return", "set", "switch", "while"]),
    row(&["sql", "postgresql", "mysql", "sqlite"], &["--"], C_BLOCK, "'", &[], &["add", "all", "alter", "and", "as", "asc", "begin", "between", "by", "case", "commit", "constraint", "create", "default", "delete", "desc", "distinct", "drop", "else", "end", "exists", "foreign", "from", "group", "having", "in", "index", "inner", "insert", "into", "is", "join", "key", "left", "like", "limit", "not", "null", "offset", "on", "or", "order", "outer", "primary", "references", "right", "rollback", "select", "set", "table", "then", "union", "unique", "update", "values", "view", "when", "where", "with", "ADD", "ALL", "ALTER", "AND", "AS", "ASC", "BEGIN", "BETWEEN", "BY", "CASE", "COMMIT", "CONSTRAINT", "CREATE", "DEFAULT", "DELETE", "DESC", "DISTINCT", "DROP", "ELSE", "END", "EXISTS", "FOREIGN", "FROM", "GROUP", "HAVING", "IN", "INDEX", "INNER", "INSERT", "INTO", "IS", "JOIN", "KEY", "LEFT", "LIKE", "LIMIT", "NOT", "NULL", "OFFSET", "ON", "OR", "ORDER", "OUTER", "PRIMARY", "REFERENCES", "RIGHT", "ROLLBACK", "SELECT", "SET", "TABLE", "THEN", "UNION", "UNIQUE", "UPDATE", "VALUES", "VIEW", "WHEN", "WHERE", "WITH"]),
    row(&["json", "jsonc", "json5", "jsonl"], &["//"], C_BLOCK, "\"", &[], &["false", "null", "true"]),
    row(&["yaml", "yml", "worker"], &["#"], None, "\"'", &[], &["false", "no", "null", "off", "on", "true", "yes"]),
    row(&["toml", "ini", "conf"], &["#", ";"], None, "\"'", &["\"\"\"", "'''"], &["false", "true"]),
    row(&["html", "xml", "svg"], &[], Some(("<!--", "-->")), "\"", &[], &[]),
    row(&["css", "scss", "less"], &[], C_BLOCK, "\"'", &[], &[]),
    row(&["lua"], &["--"], Some(("--[[", "]]")), "\"'", &[], &["and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"]),
    row(&["haskell", "hs"], &["--"], Some(("{-", "-}")), "\"", &[], &["case", "class", "data", "deriving", "do", "else", "if", "import", "in", "infix", "instance", "let", "module", "newtype", "of", "then", "type", "where"]),
    row(&["r"], &["#"], None, "\"'", &[], &["break", "else", "FALSE", "for", "function", "if", "in", "NA", "next", "NULL", "repeat", "return", "TRUE", "while"]),
    row(&["dockerfile", "docker"], &["#"], None, "\"'", &[], &["ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "SHELL", "USER", "VOLUME", "WORKDIR"]),
    row(&["makefile", "make"], &["#"], None, "", &[], &["define", "else", "endef", "endif", "ifdef", "ifeq", "ifndef", "ifneq", "include"]),
];

const fn row(
    names: &'static [&'static str],
    comments: &'static [&'static str],
    block: Option<(&'static str, &'static str)>,
    quotes: &'static str,
    long_quotes: &'static [&'static str],
    keywords: &'static [&'static str],
) -> CodeLanguage {
    CodeLanguage { names, comments, block, quotes, long_quotes, keywords }
}

impl CodeLanguage {
    /// By the first word behind a fence.
    pub fn named(info: &str) -> Option<&'static Self> {
        let end = info.find(|c: char| c.is_whitespace() || matches!(c, ',' | '{' | ':')).unwrap_or(info.len());
        let name = info.get(..end)?.to_ascii_lowercase();
        LANGUAGES.iter().find(|language| language.names.contains(&name.as_str()))
    }
}

/// What goes on from line to line.
#[derive(Clone, Copy, Debug)]
pub struct Painter {
    language: &'static CodeLanguage,
    /// What ends the comment or the text of many lines that we are in.
    until: Option<(&'static str, Appearance)>,
}

impl Painter {
    pub fn new(language: &'static CodeLanguage) -> Self {
        Self { language, until: None }
    }

    /// A line in pieces, each with its look; together they are the line.
    pub fn paint<'a>(&mut self, line: &'a str) -> Vec<(&'a str, Appearance)> {
        let (mut pieces, mut rest, mut previous) = (Vec::new(), line, None);
        while !rest.is_empty() {
            let (length, look) = self.piece(rest, previous);
            let (piece, behind) = rest.split_at(length);
            match pieces.last_mut() {
                // Spaces between two words need no look of their own.
                Some((_, last)) if *last == look => {
                    let begun: usize = pieces.iter().map(|(piece, _): &(&str, Appearance)| piece.len()).sum();
                    let start = begun - pieces.pop().map_or(0, |(piece, _)| piece.len());
                    pieces.push((&line[start..begun + length], look));
                }
                Some(_) | None => pieces.push((piece, look)),
            }
            previous = piece.chars().next_back();
            rest = behind;
        }
        pieces
    }

    /// How long the next piece is, and how it looks.
    fn piece(&mut self, rest: &str, previous: Option<char>) -> (usize, Appearance) {
        let CodeLanguage { comments, block, quotes, long_quotes, keywords, .. } = self.language;
        if let Some((end, look)) = self.until {
            return self.up_to(rest, 0, end, look);
        }
        if let Some((start, end)) = block
            && rest.starts_with(start)
        {
            return self.up_to(rest, start.len(), end, Appearance::DIM);
        }
        // `$#` and `a#b` begin no comment where one is a single sign.
        let is_apart = previous.is_none_or(char::is_whitespace);
        if comments.iter().any(|sign| rest.starts_with(sign) && (sign.len() > 1 || is_apart)) {
            return (rest.len(), Appearance::DIM);
        }
        if let Some(quote) = long_quotes.iter().find(|quote| rest.starts_with(**quote)) {
            return self.up_to(rest, quote.len(), quote, Appearance::QUOTED);
        }
        let Some(first) = rest.chars().next() else { return (0, Appearance::PLAIN) };
        if quotes.contains(first) {
            // An apostrophe without another one is a sign like others.
            return quoted(rest, first)
                .map_or((first.len_utf8(), Appearance::PLAIN), |length| (length, Appearance::QUOTED));
        }
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let Some(word) = rest.get(..length).filter(|word| !word.is_empty()) else {
            return (first.len_utf8(), Appearance::PLAIN);
        };
        let is_keyword = keywords.contains(&word);
        (length, if is_keyword { Appearance::KEYWORD } else { Appearance::PLAIN })
    }

    fn up_to(&mut self, rest: &str, from: usize, end: &'static str, look: Appearance) -> (usize, Appearance) {
        let found = rest.get(from..).and_then(|rest| rest.find(end));
        self.until = found.is_none().then_some((end, look));
        (found.map_or(rest.len(), |at| from + at + end.len()), look)
    }
}

/// How long a text is that ends with its line at the latest.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return Some(at + c.len_utf8());
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    (quote != '\'').then_some(rest.len())
}
