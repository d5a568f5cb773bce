//! Names and documentation, counted over the sources of every crate: a ceiling for each count stands here, and only falls.
//! A count above its ceiling fails, and so does one below it: whoever made things better lowers the ceiling with it.
//!
//! What is counted, and how (`syn` reads the files; nothing is compiled):
//!
//! - *types*: every `struct`, `enum`, `union`, `trait` and `type` in `crates/*/src`, also inside of functions and of
//!   macros whose argument is made of items; not those that only tests compile.
//! - *shared names*: names that more than one type has. Wire modules ([`WIRE`]) are left out: their types are named by
//!   the format that they mirror. So are those that stand for others ([`TWINS`]).
//! - *participles*: types whose whole name is one word and a participle: it ends in `-ed`, or is in [`PARTICIPLES`]. One
//!   that is said of its parameter, as in `Located<T>`, modifies it and does not count.
//! - *public items*, of the library `llm-do` only: what is `pub` in modules that are `pub` down from the root, or is
//!   re-exported from there by `pub use`; and its `pub` methods and constants, and what a trait declares. Fields and
//!   variants belong to their type.
//!   Counted is what every program sees that embeds the library with its default features, and beside it what the feature
//!   `engine` adds: what an engine of one's own is made with. This is what we promise to others, and so it has a ceiling.
//! - *items of front ends*: what the feature `front-end` adds, behind `#[cfg(feature = "front-end")]`, and what only this makes
//!   public. It is no promise to anybody: only crates of this repository switch the feature on, they are released with
//!   the library, and what they need changes with them. A program with more front ends shares more, so that a ceiling would
//!   say nothing about whether this is tidy. What says it is use: each of these items is named by another crate here, and
//!   one that none of them names is closed again. Types are left out, since whoever is given one need not name it.
//! - *undocumented*: those of all without a comment of documentation.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Meta, TraitItem, UseTree, Visibility};

// What may be there today. A ceiling is lowered, never raised.
const SHARED: usize = 0;
const BARE_PARTICIPLES: usize = 0;
const PUBLIC: usize = 450;
const ENGINE: usize = 8;
const UNDOCUMENTED: usize = 0;

/// Participles, and past forms, that do not end in `-ed`. Words that are nouns as well (`Run`, `Cut`) are not here.
const PARTICIPLES: &[&str] = &[
    "Begun",
    "Broken",
    "Brought",
    "Built",
    "Caught",
    "Chosen",
    "Done",
    "Drawn",
    "Fallen",
    "Felt",
    "Found",
    "Gave",
    "Given",
    "Gone",
    "Grown",
    "Heard",
    "Held",
    "Hidden",
    "Kept",
    "Known",
    "Laid",
    "Lent",
    "Lost",
    "Made",
    "Meant",
    "Met",
    "Paid",
    "Ran",
    "Read",
    "Risen",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Sold",
    "Sought",
    "Spent",
    "Spoken",
    "Stood",
    "Taken",
    "Taught",
    "Thought",
    "Thrown",
    "Told",
    "Torn",
    "Understood",
    "Woken",
    "Won",
    "Worn",
    "Written",
];

/// Words that end in `-ed` and are no participles.
const NOT_PARTICIPLES: &[&str] = &["Embed", "Feed", "Need", "Seed", "Speed"];

/// Modules whose types mirror a format that others read or write, beside all that are called `wire`.
const WIRE: &[&str] = &[
    "fake-llm::protocol",
    "llm-do::model::anthropic",
    "llm-do::model::gemini",
    "llm-do::model::openai_chat",
    "llm-do::model::openai_responses",
    "llm-do::tools::mcp::protocol",
    "llm-do-cli::serve::protocol",
];

/// Modules that stand for others on systems that do not have these: their types have the same names on purpose.
const TWINS: &[&str] = &["llm-do::tools::fence::absent"];

/// A type, and its module, whose first part is the crate.
struct Type {
    module: String,
    name: String,
    is_generic: bool,
}

/// With what its features open a crate is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gate {
    /// With `front-end`. What that brings of `engine` is counted on its own.
    #[default]
    Open,
    Closed,
    /// With `engine` alone.
    Engine,
}

/// All that was read of one crate.
#[derive(Default)]
struct Crate {
    gate: Gate,
    types: Vec<Type>,
    /// Each `pub` item of a module, with its place.
    items: Vec<Public>,
    /// Modules that are `pub` down from the root.
    open: BTreeSet<String>,
    /// What each `pub use` names, as module and name, and as what it can be named elsewhere; `*` is all of a module.
    exports: BTreeMap<(String, String), BTreeSet<(String, String)>>,
}

/// A `pub` item as it stands in its module.
struct Public {
    module: String,
    /// Of its own, or of the type that it belongs to.
    owner: String,
    /// As it is told to whoever reads the failure.
    name: String,
    documented: bool,
    /// A method counts wherever its type is public, in whatever module it was written.
    method: bool,
}

fn documented(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("doc"))
}

fn only_for_tests(attributes: &[Attribute]) -> bool {
    conditions(attributes).any(|condition| condition == "test" || condition == "doctest")
}

/// The conditions under which something is compiled.
fn conditions(attributes: &[Attribute]) -> impl Iterator<Item = String> {
    attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => Some(list.tokens.to_string()),
        _ => None,
    })
}

/// Whether a module stands in for another one of the same name: on another system, or opened to our own tests.
fn stands_in(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("path"))
        || conditions(attributes).any(|condition| condition == "feature = \"internals\"")
}

impl Gate {
    /// Whether something is compiled, as far as the feature decides it.
    fn lets_through(self, attributes: &[Attribute]) -> bool {
        !conditions(attributes).any(|condition| match condition.as_str() {
            "feature = \"engine\"" => self != Self::Engine,
            "feature = \"front-end\"" => self != Self::Open,
            "not (feature = \"front-end\")" => self == Self::Open,
            _ => false,
        })
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Types, wherever they stand: also in functions. Each with whether it has a parameter that is a type.
#[derive(Default)]
struct Types(Vec<(String, bool)>);

impl<'ast> Visit<'ast> for Types {
    fn visit_item(&mut self, item: &'ast Item) {
        let named = match item {
            Item::Struct(item) => Some((&item.attrs, &item.ident, &item.generics)),
            Item::Enum(item) => Some((&item.attrs, &item.ident, &item.generics)),
            Item::Union(item) => Some((&item.attrs, &item.ident, &item.generics)),
            Item::Trait(item) => Some((&item.attrs, &item.ident, &item.generics)),
            Item::Type(item) => Some((&item.attrs, &item.ident, &item.generics)),
            // Modules are walked one by one, since each has a name of its own.
            Item::Mod(_) => return,
            Item::Fn(item) if only_for_tests(&item.attrs) => return,
            _ => None,
        };
        match named {
            Some((attributes, ..)) if only_for_tests(attributes) => {}
            Some((_, name, generics)) => self.0.push((name.to_string(), generics.type_params().next().is_some())),
            None => visit::visit_item(self, item),
        }
    }
}

impl Crate {
    fn read(root: &Path, gate: Gate) -> Self {
        let name = root.file_name().unwrap().to_str().unwrap().to_owned();
        let mut found = Self { gate, ..Self::default() };
        for file in ["lib.rs", "main.rs"] {
            let path = root.join("src").join(file);
            if path.exists() {
                found.open.insert(name.clone());
                found.file(&path, &root.join("src"), &name);
            }
        }
        found
    }

    /// A file whose own modules lie in `beneath`.
    fn file(&mut self, path: &Path, beneath: &Path, module: &str) {
        let file = syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap();
        self.items(&file.items, beneath, module);
    }

    fn items(&mut self, items: &[Item], beneath: &Path, module: &str) {
        let gate = self.gate;
        for item in items.iter().filter(|item| gate.lets_through(attributes(item))) {
            match item {
                Item::Mod(inner) if !only_for_tests(&inner.attrs) && !stands_in(&inner.attrs) => {
                    let name = inner.ident.to_string();
                    let inside = format!("{module}::{name}");
                    if is_public(&inner.vis) && self.open.contains(module) {
                        self.open.insert(inside.clone());
                    }
                    let directory = beneath.join(&name);
                    let mut about = documented(&inner.attrs);
                    if let Some((_, items)) = &inner.content {
                        self.items(items, &directory, &inside);
                    } else {
                        let beside = beneath.join(format!("{name}.rs"));
                        let path = if beside.exists() { beside } else { directory.join("mod.rs") };
                        about |= fs::read_to_string(&path).unwrap().starts_with("//!");
                        self.file(&path, &directory, &inside);
                    }
                    if is_public(&inner.vis) {
                        self.put(module, &name, &name, about, false);
                    }
                }
                Item::Mod(_) => {}
                // What a macro is given may be items, which it then makes.
                Item::Macro(call) if call.ident.is_none() => {
                    if let Ok(inner) = syn::parse2::<syn::File>(call.mac.tokens.clone()) {
                        self.items(&inner.items, beneath, module);
                    }
                }
                item => {
                    let mut types = Types::default();
                    types.visit_item(item);
                    let named = |(name, is_generic)| Type { module: module.to_owned(), name, is_generic };
                    self.types.extend(types.0.into_iter().map(named));
                    self.public(item, module);
                }
            }
        }
    }

    fn put(&mut self, module: &str, owner: &str, name: &str, documented: bool, method: bool) {
        let (module, owner, name) = (module.to_owned(), owner.to_owned(), format!("{module}::{name}"));
        self.items.push(Public { module, owner, name, documented, method });
    }

    fn public(&mut self, item: &Item, module: &str) {
        let gate = self.gate;
        let mut plain = |visibility: &Visibility, name: String, attributes: &[Attribute]| {
            if is_public(visibility) && !only_for_tests(attributes) {
                self.put(module, &name, &name, documented(attributes), false);
            }
            is_public(visibility) && !only_for_tests(attributes)
        };
        match item {
            Item::Const(item) => drop(plain(&item.vis, item.ident.to_string(), &item.attrs)),
            Item::Static(item) => drop(plain(&item.vis, item.ident.to_string(), &item.attrs)),
            Item::Fn(item) => drop(plain(&item.vis, item.sig.ident.to_string(), &item.attrs)),
            Item::Type(item) => drop(plain(&item.vis, item.ident.to_string(), &item.attrs)),
            Item::Struct(item) => drop(plain(&item.vis, item.ident.to_string(), &item.attrs)),
            Item::Enum(item) => drop(plain(&item.vis, item.ident.to_string(), &item.attrs)),
            Item::Trait(item) => {
                let name = item.ident.to_string();
                if plain(&item.vis, name.clone(), &item.attrs) {
                    for inner in &item.items {
                        let (inside, attributes) = match inner {
                            TraitItem::Fn(inner) => (inner.sig.ident.to_string(), &inner.attrs),
                            TraitItem::Const(inner) => (inner.ident.to_string(), &inner.attrs),
                            TraitItem::Type(inner) => (inner.ident.to_string(), &inner.attrs),
                            _ => continue,
                        };
                        if !gate.lets_through(attributes) {
                            continue;
                        }
                        self.put(module, &name, &format!("{name}::{inside}"), documented(attributes), false);
                    }
                }
            }
            Item::Impl(item) if item.trait_.is_none() && !only_for_tests(&item.attrs) => {
                let syn::Type::Path(path) = &*item.self_ty else { return };
                let name = path.path.segments.last().unwrap().ident.to_string();
                for inner in &item.items {
                    let (visibility, inside, attributes) = match inner {
                        ImplItem::Fn(inner) => (&inner.vis, inner.sig.ident.to_string(), &inner.attrs),
                        ImplItem::Const(inner) => (&inner.vis, inner.ident.to_string(), &inner.attrs),
                        _ => continue,
                    };
                    if is_public(visibility) && !only_for_tests(attributes) && gate.lets_through(attributes) {
                        self.put(module, &name, &format!("{name}::{inside}"), documented(attributes), true);
                    }
                }
            }
            Item::Use(item) if is_public(&item.vis) => self.export(module, module, &item.tree),
            _ => {}
        }
    }

    /// What a `pub use` names, as far as it is of this crate: `at` is where it can be named, `inside` where it is looked up.
    fn export(&mut self, at: &str, inside: &str, tree: &UseTree) {
        let root = inside.split("::").next().unwrap().to_owned();
        let mut put = |name: &str, shown: &str| {
            let of = (inside.to_owned(), name.to_owned());
            self.exports.entry(of).or_default().insert((at.to_owned(), shown.to_owned()));
        };
        match tree {
            UseTree::Path(path) => {
                let next = match path.ident.to_string().as_str() {
                    "crate" => root,
                    "self" => inside.to_owned(),
                    "super" => inside.rsplit_once("::").unwrap().0.to_owned(),
                    name => format!("{inside}::{name}"),
                };
                self.export(at, &next, &path.tree);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.export(at, inside, tree)),
            UseTree::Name(name) => put(&name.ident.to_string(), &name.ident.to_string()),
            UseTree::Rename(name) => put(&name.ident.to_string(), &name.rename.to_string()),
            UseTree::Glob(_) => put("*", "*"),
        }
    }

    /// Whether an embedder can name what is called `name` in `module`: there, or where that is re-exported, however often.
    fn is_open(&self, module: &str, name: &str) -> bool {
        self.open.contains(module)
            || [name, "*"].iter().any(|found| {
                let exports = self.exports.get(&(module.to_owned(), (*found).to_owned()));
                let is_open = |(at, shown): &(String, String)| {
                    at != module && self.is_open(at, if shown == "*" { name } else { shown })
                };
                exports.is_some_and(|exports| exports.iter().any(is_open))
            })
    }

    /// What an embedder can name, each with whether it is documented.
    fn reachable(&self) -> BTreeMap<&str, bool> {
        let is_open = |item: &Public| self.is_open(&item.module, &item.owner);
        let owners: BTreeSet<&str> =
            self.items.iter().filter(|item| !item.method && is_open(item)).map(|item| item.owner.as_str()).collect();
        let counts = |item: &&Public| if item.method { owners.contains(item.owner.as_str()) } else { is_open(item) };
        self.items.iter().filter(counts).map(|item| (item.name.as_str(), item.documented)).collect()
    }
}

fn is_wire(module: &str) -> bool {
    let is_beneath =
        |wire: &&str| module.strip_prefix(wire).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    module.split("::").any(|part| part == "wire") || WIRE.iter().any(is_beneath)
}

fn is_participle(found: &Type) -> bool {
    let name = found.name.as_str();
    let one_word = name.chars().skip(1).all(char::is_lowercase);
    one_word
        && !found.is_generic
        && (PARTICIPLES.contains(&name) || name.ends_with("ed") && !NOT_PARTICIPLES.contains(&name))
}

/// Names that several types have, with where they are.
fn shared(types: &[&Type]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for found in types {
        places.entry(&found.name).or_default().push(&found.module);
    }
    let several = places.iter().filter(|(_, places)| places.len() > 1);
    several.map(|(name, places)| format!("{name}: {}", places.join(", "))).collect()
}

fn crates() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.join("src").is_dir());
    found.sort();
    found
}

/// Every word of the sources of other crates than the library.
fn words_of_others() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut directories = crates();
    directories.retain(|path| !path.ends_with("llm-do"));
    directories.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench"));
    for directory in &mut directories {
        directory.push("src");
    }
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let parts = text.split(|character: char| !character.is_alphanumeric() && character != '_');
                words.extend(parts.map(str::to_owned));
            }
        }
    }
    words
}

/// The items, other than types, whose name stands in no other crate.
fn unnamed(items: &[String]) -> Vec<String> {
    let words = words_of_others();
    assert!(words.contains("Launch"), "the sources are where they were");
    let is_type = |name: &str| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
    let last = |item: &String| item.rsplit("::").next().unwrap().to_owned();
    items.iter().filter(|item| !is_type(&last(item)) && !words.contains(&last(item))).cloned().collect()
}

/// What was counted: of how many, which, and how many there may be.
struct Count {
    what: &'static str,
    of: usize,
    found: Vec<String>,
    ceiling: usize,
}

impl Count {
    /// What is wrong with it, and all that is counted.
    fn complaint(&self) -> Option<String> {
        let change = match self.found.len().cmp(&self.ceiling) {
            Ordering::Equal => return None,
            Ordering::Greater => "above its ceiling: bring it down",
            Ordering::Less => "below its ceiling: lower that",
        };
        let tenths = 1000 * self.found.len() / self.of;
        let (what, count, of, list) = (self.what, self.found.len(), self.of, self.found.join("\n"));
        Some(format!("{list}\n{what}: {count} of {of}, {}.{} %, {change}\n", tenths / 10, tenths % 10))
    }
}

#[test]
fn what_counts_is_found_wherever_it_is_written() {
    let source = "
        pub mod open {
            pub use self::closed::Shown;
            pub use self::closed::Near;
            /// Told of.
            pub struct Given { pub field: u8 }
            impl Given { pub fn new() {} fn own() {} }
            pub(crate) struct Told;
            mod closed { pub use self::inner::Far as Near; mod inner { pub struct Far; pub struct Unseen; } pub struct Shown; pub struct Hidden; impl Shown { /// Told of. \n pub fn it() {} } }
            fn f() { struct Told; }
            pub struct Located<T>(T);
            #[cfg(test)] mod tests { struct Told; pub struct Made; }
        }
        items! { pub trait Feed { fn next(); } }";
    let mut found = Crate::default();
    found.open.insert("it".to_owned());
    found.items(&syn::parse_file(source).unwrap().items, Path::new(""), "it");
    let types: Vec<&Type> = found.types.iter().collect();
    assert_eq!(shared(&types), ["Told: it::open, it::open"]);
    let participles: BTreeSet<&str> =
        types.iter().filter(|found| is_participle(found)).map(|found| found.name.as_str()).collect();
    assert_eq!(participles, BTreeSet::from(["Given", "Hidden", "Shown", "Told"]));
    let public = found.reachable();
    let named = |documented| public.iter().filter(move |(_, is)| **is == documented).map(|(name, _)| *name);
    assert!(named(true).eq(["it::open::Given", "it::open::closed::Shown::it"]));
    let undocumented: Vec<&str> = named(false).collect();
    let expected = ["it::Feed", "it::Feed::next", "it::open", "it::open::Given::new", "it::open::Located"];
    assert_eq!(undocumented, [&expected[..], &["it::open::closed::Shown", "it::open::closed::inner::Far"]].concat());
}

#[test]
fn what_the_feature_opens_is_told_from_what_is_always_public() {
    let source = r#"
        pub mod always {
            pub use self::room::Shown;
            #[cfg(feature = "front-end")]
            pub use self::room::Gated;
            #[cfg(feature = "front-end")]
            pub use self::room::work;
            mod room {
                pub struct Shown;
                impl Shown {
                    pub fn usual() {}
                    #[cfg(feature = "front-end")]
                    pub fn gated() {}
                }
                #[cfg(feature = "front-end")]
                impl Shown { pub const ALSO_GATED: u8 = 0; }
                pub struct Gated;
                impl Gated { pub fn with_its_type() {} }
                pub fn work() {}
            }
        }
        #[cfg(feature = "front-end")]
        pub mod gated { pub fn inside() {} }
        #[cfg(not(feature = "front-end"))]
        mod other { pub struct Other; }
        #[cfg(feature = "front-end")]
        pub mod other { pub struct Other; }
        #[cfg(feature = "internals")]
        pub mod opened { pub fn to_our_tests() {} }
        pub trait Port { fn port(); #[cfg(feature = "front-end")] fn gated_port(); }"#;
    let public = |gate| {
        let mut found = Crate { gate, ..Crate::default() };
        found.open.insert("it".to_owned());
        found.items(&syn::parse_file(source).unwrap().items, Path::new(""), "it");
        found.reachable().into_keys().map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let (closed, open) = (public(Gate::Closed), public(Gate::Open));
    let by_default =
        ["it::Port", "it::Port::port", "it::always", "it::always::room::Shown", "it::always::room::Shown::usual"];
    assert!(closed.iter().eq(by_default), "{closed:?}");
    assert!(closed.is_subset(&open));
    let added = [
        "it::Port::gated_port",
        "it::always::room::Gated",
        "it::always::room::Gated::with_its_type",
        "it::always::room::Shown::ALSO_GATED",
        "it::always::room::Shown::gated",
        "it::always::room::work",
        "it::gated",
        "it::gated::inside",
        "it::other",
        "it::other::Other",
    ];
    assert!(open.difference(&closed).eq(added), "{:?}", open.difference(&closed));
}

#[test]
fn what_is_opened_for_front_ends_and_named_by_none_is_found() {
    let items = ["it::Type::nobody_calls_this_one", "it::Unseen", "it::store::RunStore::open"].map(str::to_owned);
    assert_eq!(unnamed(&items), ["it::Type::nobody_calls_this_one"]);
}

#[test]
fn every_count_is_at_its_ceiling() {
    let read: Vec<Crate> = crates().iter().map(|path| Crate::read(path, Gate::Open)).collect();
    let types: Vec<&Type> = read.iter().flat_map(|found| &found.types).collect();
    assert!(types.len() > 500, "the sources are where they were");
    for wire in WIRE {
        assert!(types.iter().any(|found| found.module.starts_with(wire)), "there is no wire module `{wire}`");
    }
    let library = crates().iter().position(|path| path.ends_with("llm-do")).unwrap();
    let public = read[library].reachable();
    let without_feature = Crate::read(&crates()[library], Gate::Closed);
    let by_default = without_feature.reachable();
    let added: Vec<String> =
        public.keys().filter(|name| !by_default.contains_key(*name)).map(|name| (*name).to_owned()).collect();
    let is_own = |found: &&Type| !is_wire(&found.module) && !TWINS.contains(&found.module.as_str());
    let with_engine = Crate::read(&crates()[library], Gate::Engine);
    let with_engine = with_engine.reachable();
    let of_engines: Vec<String> =
        with_engine.keys().filter(|name| !by_default.contains_key(*name)).map(|name| (*name).to_owned()).collect();
    let own: Vec<&Type> = types.iter().copied().filter(is_own).collect();
    let participles = types.iter().filter(|found| is_participle(found));
    let undocumented = public.iter().chain(&with_engine).filter(|(_, documented)| !**documented);
    let counts = [
        Count {
            what: "names that several types share",
            of: own.iter().map(|found| found.name.as_str()).collect::<BTreeSet<_>>().len(),
            found: shared(&own),
            ceiling: SHARED,
        },
        Count {
            what: "types whose whole name is a participle",
            of: types.len(),
            found: participles.map(|found| format!("{}::{}", found.module, found.name)).collect(),
            ceiling: BARE_PARTICIPLES,
        },
        Count {
            what: "public items without further features",
            of: public.len(),
            found: by_default.keys().map(|name| (*name).to_owned()).collect(),
            ceiling: PUBLIC,
        },
        Count {
            what: "public items that the feature `front-end` adds and no other crate names",
            of: added.len(),
            found: unnamed(&added),
            ceiling: 0,
        },
        Count {
            what: "public items that the feature `engine` adds",
            of: public.len(),
            found: of_engines,
            ceiling: ENGINE,
        },
        Count {
            what: "public items without documentation",
            of: public.len(),
            found: undocumented.map(|(name, _)| (*name).to_owned()).collect(),
            ceiling: UNDOCUMENTED,
        },
    ];
    let complaints: Vec<String> = counts.iter().filter_map(Count::complaint).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The file that leads from words to commands, and the function of each of them, are read at a glance.
const LONGEST_COMMANDS_FILE: usize = 150;
const LONGEST_COMMAND: usize = 15;

/// The functions of a file that are called `run` or `run_…`, with how many lines each has. Files are formatted: a function at
/// the root of a file ends with the first brace at the beginning of a line.
fn runs(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?.split(['(', '<']).next()?;
        (name == "run" || name.starts_with("run_")).then(|| name.to_owned())
    };
    let starts = lines.iter().enumerate().filter_map(|(at, line)| Some((at, begins(line)?)));
    starts.map(|(at, name)| (name, lines[at..].iter().position(|line| line.starts_with('}')).unwrap() + 1)).collect()
}

#[test]
fn every_command_is_read_at_a_glance() {
    assert_eq!(
        runs("fn run_it() {\n    x();\n}\npub fn run(\n) {\n}\nfn runs() {\n}\n"),
        [("run_it".to_owned(), 3), ("run".to_owned(), 3)]
    );
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm-do-cli/src");
    let first = fs::read_to_string(sources.join("commands.rs")).unwrap();
    assert!(first.lines().count() <= LONGEST_COMMANDS_FILE, "commands.rs has {} lines", first.lines().count());
    let mut found = runs(&first);
    // It has a line for each command.
    found.retain(|(name, _)| name != "run");
    let entries = fs::read_dir(sources.join("commands")).unwrap().map(|entry| entry.unwrap().path());
    for path in entries.filter(|path| path.is_file()).chain([sources.join("serve.rs")]) {
        let own = runs(&fs::read_to_string(&path).unwrap()).into_iter();
        found.extend(own.map(|(name, lines)| (format!("{}: {name}", path.file_name().unwrap().display()), lines)));
    }
    assert!(found.len() >= 6, "the functions of the commands are called `run`: {found:?}");
    found.retain(|(_, lines)| *lines > LONGEST_COMMAND);
    assert!(found.is_empty(), "functions of commands with more than {LONGEST_COMMAND} lines: {found:?}");
}
