//! Pictures as text: SVG that stands alone, with presentation attributes only, so that any policy lets it be shown. Pure.

use std::fmt::Write as _;

use llm_do::escape::visible_name;

use crate::layout::graph::PlacedGraph;
use crate::layout::timeline::{Timeline, shown_time};
use crate::told_call::TimedKind;

/// Text that stands in markup, with what cannot be seen written out.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in visible_name(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn text(out: &mut String, x: u32, y: u32, size: u32, fill: &str, words: &str) {
    let _ = writeln!(out, r#"<text x="{x}" y="{y}" font-size="{size}" fill="{fill}">{}</text>"#, escaped(words));
}

fn opened(width: u32, height: u32) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, sans-serif\" role=\"img\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    )
}

const INK: &str = "#1d2023";
const DIM: &str = "#5b6167";
const ACCENT: &str = "#2f55c5";
const WAIT: &str = "#8a5200";

/// Who calls whom.
pub fn graph(graph: &PlacedGraph) -> String {
    let mut out = opened(graph.width, graph.height);
    for arrow in &graph.arrows {
        let [(ax, ay), (bx, by), (cx, cy), (dx, dy)] = arrow.points;
        let tip = if arrow.is_back { 7 } else { -7 };
        let _ = writeln!(
            out,
            "<path d=\"M{ax} {ay} C{bx} {by} {cx} {cy} {dx} {dy}\" fill=\"none\" stroke=\"#8b93a6\" stroke-width=\"1.4\"/>\
             <path d=\"M{dx} {dy} l{tip} -4 v8 z\" fill=\"#8b93a6\"/>"
        );
    }
    for agent in &graph.boxes {
        let (stroke, width) = if agent.is_entry { (ACCENT, 2) } else { ("#c9ccc4", 1) };
        let dashes = if agent.is_cyclic { " stroke-dasharray=\"5 3\"" } else { "" };
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"#fbfbf9\" stroke=\"{stroke}\" \
             stroke-width=\"{width}\"{dashes}/>",
            agent.x, agent.y, agent.width, agent.height
        );
        let cycle = if agent.is_cyclic { " ↻" } else { "" };
        text(&mut out, agent.x + 12, agent.y + 22, 13, INK, &format!("{}{cycle}", cut(&agent.name, 22)));
        text(&mut out, agent.x + 12, agent.y + 40, 11, DIM, &cut(&agent.model, 30));
        let (can, asks) = (&agent.unasked, &agent.asked);
        let lines = [("can", can, DIM), ("asks", asks, WAIT)];
        let mut lines: Vec<(String, &str)> = lines
            .into_iter()
            .filter(|(_, all, _)| !all.is_empty())
            .map(|(word, all, fill)| (format!("{word}: {}", all.join(", ")), fill))
            .collect();
        if lines.is_empty() {
            lines.push(("no effects".to_owned(), DIM));
        }
        for ((words, fill), y) in lines.iter().zip((agent.y + 58..).step_by(17)) {
            text(&mut out, agent.x + 12, y, 11, fill, &cut(&words.replace('_', " "), 32));
        }
    }
    out + "</svg>\n"
}

/// What a run did, and when.
pub fn timeline(timeline: &Timeline) -> String {
    const LABELS: u64 = 240;
    const BARS: u64 = 640;
    const ROW: u32 = 24;
    let rows = u32::try_from(timeline.rows.len()).unwrap_or(u32::MAX / 64);
    let height = 40 + rows * ROW;
    let mut out = opened(980, height);
    out.push_str(
        "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#c98a1b\" stroke-width=\"3\"/>\
         </pattern></defs>\n",
    );
    let place = |thousandths: u64| u32::try_from(LABELS + thousandths * BARS / 1000).unwrap_or(980);
    for tick in &timeline.ticks {
        let x = place(tick.left);
        let _ = writeln!(out, "<path d=\"M{x} 26 V{height}\" stroke=\"#e4e5df\"/>");
        text(&mut out, x, 18, 11, DIM, &tick.label);
    }
    for (row, y) in timeline.rows.iter().zip((30..).step_by(24)) {
        let indent = u32::try_from(row.depth.min(10)).unwrap_or(10) * 12;
        text(&mut out, 12 + indent, y + 16, 12, INK, &cut(&row.name, 30));
        let fill = match row.kind {
            TimedKind::Agent => "#5b6fc9",
            TimedKind::Tool => "#4b7f9c",
            TimedKind::Request => "#9aa3b8",
            TimedKind::Person => "url(#hatch)",
        };
        let (left, right) = (place(row.left), place(row.left + row.width));
        let width = right.saturating_sub(left).max(2);
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{}\" width=\"{width}\" height=\"12\" rx=\"2\" fill=\"{fill}\"/>",
            y + 6
        );
        text(&mut out, 892, y + 16, 11, DIM, &shown_time(row.took));
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::graph::{CallGraph, GraphAgent};
    use crate::told_call::TimedCall;

    const HOSTILE: &str = "</text><script>alert(1)</script>\" onload='x'\u{202e}";

    #[test]
    fn foreign_text_is_text_and_nothing_needs_a_style() {
        let agent = GraphAgent { name: HOSTILE.to_owned(), model: HOSTILE.to_owned(), ..GraphAgent::default() };
        let drawn = graph(&PlacedGraph::of(&CallGraph { agents: vec![agent], entry: Some(0) }));
        let call = TimedCall {
            key: String::new(),
            name: HOSTILE.to_owned(),
            depth: 0,
            kind: TimedKind::Person,
            began: 0,
            ended: 5,
            usage: None,
        };
        for svg in [drawn, timeline(&Timeline::of(&[call]))] {
            assert!(!svg.contains("<script") && !svg.contains('\u{202e}') && !svg.contains("style="), "{svg}");
            assert!(svg.contains("&lt;/text&gt;") && svg.ends_with("</svg>\n"), "{svg}");
        }
    }
}
