//! The call graph: agents in columns by how far they are from where a run starts, with as few crossings as two sweeps leave.

use std::collections::VecDeque;

use serde::Serialize;

/// Who calls whom.
#[derive(Clone, Debug, Default)]
pub struct CallGraph {
    pub agents: Vec<GraphAgent>,
    /// Where a run starts.
    pub entry: Option<usize>,
}

/// An agent of it.
#[derive(Clone, Debug, Default)]
pub struct GraphAgent {
    pub name: String,
    pub model: String,
    pub calls: Vec<usize>,
    pub calls_any: bool,
    pub is_cyclic: bool,
    /// What it can do in the worst case without a question, and with one.
    pub unasked: Vec<String>,
    pub asked: Vec<String>,
    pub tools: Vec<String>,
}

/// The graph with its places, in pixels.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlacedGraph {
    pub width: u32,
    pub height: u32,
    pub boxes: Vec<PlacedAgent>,
    pub arrows: Vec<Arrow>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlacedAgent {
    pub name: String,
    pub model: String,
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
    pub is_entry: bool,
    pub is_cyclic: bool,
    pub calls_any: bool,
    pub unasked: Vec<String>,
    pub asked: Vec<String>,
    pub tools: Vec<String>,
}

/// A call, from the edge of one box to that of another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Arrow {
    pub from: usize,
    pub to: usize,
    /// Begin, two points that pull, and end: a cubic curve.
    pub points: [(u32, u32); 4],
    /// Whether it goes back to an earlier column, or stays in one.
    pub is_back: bool,
}

const WIDTH: u32 = 200;
const HEIGHT: u32 = 92;
const GAP_X: u32 = 90;
const GAP_Y: u32 = 26;
const MARGIN: u32 = 24;
/// More boxes in a column than this stand in the next one.
const TALLEST: usize = 40;

impl PlacedGraph {
    pub fn of(graph: &CallGraph) -> Self {
        let columns = ordered(graph, columns(graph));
        let tallest = columns.iter().map(Vec::len).max().unwrap_or(0);
        let height_of = |count: usize| numbered(count) * (HEIGHT + GAP_Y);
        let mut places = vec![(0, 0); graph.agents.len()];
        for (column, agents) in columns.iter().enumerate() {
            let top = MARGIN + (height_of(tallest) - height_of(agents.len())) / 2;
            for (row, agent) in agents.iter().enumerate() {
                places[*agent] = (MARGIN + numbered(column) * (WIDTH + GAP_X), top + height_of(row));
            }
        }
        let boxes = graph.agents.iter().zip(&places).enumerate().map(|(at, (agent, (x, y)))| PlacedAgent {
            name: agent.name.clone(),
            model: agent.model.clone(),
            x: *x,
            y: *y,
            width: WIDTH,
            height: HEIGHT,
            is_entry: graph.entry == Some(at),
            is_cyclic: agent.is_cyclic,
            calls_any: agent.calls_any,
            unasked: agent.unasked.clone(),
            asked: agent.asked.clone(),
            tools: agent.tools.clone(),
        });
        let calls =
            graph.agents.iter().enumerate().flat_map(|(from, agent)| agent.calls.iter().map(move |to| (from, *to)));
        let arrows = calls.filter(|(_, to)| *to < places.len()).map(|(from, to)| arrow(&places, from, to));
        let arrows: Vec<Arrow> = arrows.collect();
        let widest = arrows.iter().flat_map(|arrow| arrow.points).map(|(x, _)| x).max().unwrap_or(0);
        Self {
            width: (2 * MARGIN + numbered(columns.len()).max(1) * (WIDTH + GAP_X) - GAP_X).max(widest + 8),
            height: 2 * MARGIN + height_of(tallest.max(1)) - GAP_Y,
            boxes: boxes.collect(),
            arrows,
        }
    }
}

fn numbered(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX / 1024)
}

/// The columns: how many calls lie between the start and an agent; what is never reached stands in the last ones.
fn columns(graph: &CallGraph) -> Vec<Vec<usize>> {
    let mut depth: Vec<Option<usize>> = vec![None; graph.agents.len()];
    let mut waiting: VecDeque<usize> = graph.entry.into_iter().collect();
    graph.entry.iter().for_each(|entry| depth[*entry] = Some(0));
    let mut deepest = graph.entry.map(|_| 0);
    loop {
        while let Some(agent) = waiting.pop_front() {
            let below = depth[agent].map_or(0, |depth| depth + 1);
            for callee in graph.agents[agent].calls.iter().copied().filter(|callee| *callee < graph.agents.len()) {
                if depth[callee].is_none() {
                    depth[callee] = Some(below);
                    deepest = deepest.max(Some(below));
                    waiting.push_back(callee);
                }
            }
        }
        // Whoever is called by nobody that is left begins a part of its own.
        let left: Vec<usize> = (0..depth.len()).filter(|agent| depth[*agent].is_none()).collect();
        let is_called =
            |agent: usize| left.iter().any(|other| *other != agent && graph.agents[*other].calls.contains(&agent));
        let Some(next) = left.iter().copied().find(|agent| !is_called(*agent)).or(left.first().copied()) else { break };
        let column = deepest.map_or(0, |_| 1);
        depth[next] = Some(column);
        deepest = deepest.max(Some(column));
        waiting.push_back(next);
    }
    let mut columns: Vec<Vec<usize>> = Vec::new();
    for (agent, depth) in depth.into_iter().enumerate() {
        let column = depth.unwrap_or_default();
        columns.resize_with(columns.len().max(column + 1), Vec::new);
        columns[column].push(agent);
    }
    columns.into_iter().flat_map(|column| column.chunks(TALLEST).map(<[usize]>::to_vec).collect::<Vec<_>>()).collect()
}

/// Each column in the order of the middles of those that call, then of those that are called.
fn ordered(graph: &CallGraph, mut columns: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let count = graph.agents.len();
    let mut callers = vec![Vec::new(); count];
    for (agent, of) in graph.agents.iter().enumerate() {
        of.calls.iter().filter(|callee| **callee < count).for_each(|callee| callers[*callee].push(agent));
    }
    let mut row = vec![0; count];
    let place = |columns: &[Vec<usize>], row: &mut Vec<usize>| {
        for column in columns {
            column.iter().enumerate().for_each(|(at, agent)| row[*agent] = at);
        }
    };
    place(&columns, &mut row);
    for is_forward in [true, false, true] {
        let order: Vec<usize> =
            if is_forward { (0..columns.len()).collect() } else { (0..columns.len()).rev().collect() };
        for at in order {
            let mut column = std::mem::take(&mut columns[at]);
            column.sort_by_cached_key(|agent| {
                let others = if is_forward { &callers[*agent] } else { &graph.agents[*agent].calls };
                let known: Vec<usize> =
                    others.iter().filter(|other| **other < count).map(|other| row[*other]).collect();
                // Thousandths, so that middles of two rows count.
                let middle = if known.is_empty() {
                    row[*agent] * 1000
                } else {
                    known.iter().sum::<usize>() * 1000 / known.len()
                };
                (middle, *agent)
            });
            columns[at] = column;
            place(&columns[at..=at], &mut row);
        }
    }
    columns
}

fn arrow(places: &[(u32, u32)], from: usize, to: usize) -> Arrow {
    let ((x1, y1), (x2, y2)) = (places[from], places[to]);
    let (middle1, middle2) = (y1 + HEIGHT / 2, y2 + HEIGHT / 2);
    if x2 > x1 {
        let (begin, end) = (x1 + WIDTH, x2);
        let pull = (end - begin) / 2;
        let points = [(begin, middle1), (begin + pull, middle1), (end - pull, middle2), (end, middle2)];
        return Arrow { from, to, points, is_back: false };
    }
    // Back, or within one column: around the right side.
    let (begin, end) = (x1 + WIDTH, x2 + WIDTH);
    let out = begin.max(end) + GAP_X / 2;
    let (middle1, middle2) = if from == to { (middle1 - HEIGHT / 4, middle2 + HEIGHT / 4) } else { (middle1, middle2) };
    Arrow { from, to, points: [(begin, middle1), (out, middle1), (out, middle2), (end, middle2)], is_back: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(entry: Option<usize>, calls: &[&[usize]]) -> CallGraph {
        let agents = calls.iter().enumerate();
        let agents = agents.map(|(at, calls)| GraphAgent {
            name: format!("a{at}"),
            calls: calls.to_vec(),
            ..GraphAgent::default()
        });
        CallGraph { agents: agents.collect(), entry }
    }

    #[test]
    fn agents_stand_in_columns_by_their_distance_from_the_start() {
        for (name, graph, expected) in [
            ("nobody", graph(None, &[]), vec![]),
            ("one", graph(Some(0), &[&[]]), vec![vec![0]]),
            ("a chain", graph(Some(0), &[&[1], &[2], &[]]), vec![vec![0], vec![1], vec![2]]),
            ("a cycle", graph(Some(0), &[&[1], &[0]]), vec![vec![0], vec![1]]),
            ("two roads", graph(Some(0), &[&[1, 2], &[3], &[3], &[]]), vec![vec![0], vec![1, 2], vec![3]]),
            ("no entry", graph(None, &[&[1], &[]]), vec![vec![0], vec![1]]),
            ("unreached", graph(Some(1), &[&[2], &[], &[]]), vec![vec![1], vec![0], vec![2]]),
        ] {
            assert_eq!(columns(&graph), expected, "{name}");
        }
    }

    #[test]
    fn crossings_that_can_be_avoided_are() {
        // 1 calls 4 and 2 calls 3: the third column turns around.
        let columns = ordered(&graph(Some(0), &[&[1, 2], &[4], &[3], &[], &[]]), vec![vec![0], vec![1, 2], vec![3, 4]]);
        assert_eq!(columns, [vec![0], vec![1, 2], vec![4, 3]]);
    }

    #[test]
    fn boxes_never_touch_and_all_stands_in_the_picture() {
        let calls: Vec<Vec<usize>> = (0..60).map(|at: usize| vec![(at * 7) % 60, (at + 1) % 60, at / 2]).collect();
        let calls: Vec<&[usize]> = calls.iter().map(Vec::as_slice).collect();
        let placed = PlacedGraph::of(&graph(Some(0), &calls));
        for (at, one) in placed.boxes.iter().enumerate() {
            assert!(one.x + one.width <= placed.width && one.y + one.height <= placed.height, "{one:?}");
            for other in &placed.boxes[..at] {
                let is_apart = one.x + one.width <= other.x
                    || other.x + other.width <= one.x
                    || one.y + one.height <= other.y
                    || other.y + other.height <= one.y;
                assert!(is_apart, "{one:?} {other:?}");
            }
        }
        assert_eq!(placed.arrows.len(), calls.iter().map(|calls| calls.len()).sum::<usize>());
    }
}
