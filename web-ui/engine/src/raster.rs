//! From lanes to pixels: one byte a pixel column and row, found by binary search, so that a
//! million spans cost no more than what the screen shows.

use super::class::Class;
use super::lanes::{Lanes, OPEN, Row, Span};
use lockstep_web_protocol::{Response, RowKind, SpanText, Window};

/// Pixels and the texts on them.
pub(super) struct Drawn {
    rows: Vec<RowKind>,
    /// Row by row: ranks as the window has them, the lanes of each top down.
    pub(super) pixels: Vec<u8>,
    pub(super) texts: Vec<SpanText>,
    /// True if what has not ended is cut by the end of the recording.
    pub(super) cut: bool,
}

impl Drawn {
    /// The answer with the pixels' rows and texts; takes the texts.
    pub(super) fn response(&mut self) -> Response {
        let (rows, texts) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.texts));
        Response::Drawn { cut: self.cut, rows, texts }
    }
}

const MAX_COLUMNS: u32 = 8192;
const MAX_ROWS: u32 = 4096;
const MAX_TEXTS: usize = 600;

/// Draws a window. `ended` says that what is still open will stay so.
pub(super) fn draw(
    lanes: &Lanes,
    window: &Window,
    ended: bool,
    text_of: impl Fn(u32, Row, &Span) -> String,
) -> Drawn {
    let columns = window.columns.clamp(1, MAX_COLUMNS) as usize;
    let rows = lanes.rows();
    let height = (window.ranks.len() * rows.len()).min(MAX_ROWS as usize);
    let mut drawn = Drawn {
        rows: rows.iter().map(|row| lanes.kind(*row)).collect(),
        pixels: vec![0; height * columns],
        texts: Vec::new(),
        cut: false,
    };
    let to_ps = window.to_ps.max(window.from_ps + 1);
    let scale = Scale { from: window.from_ps, to: to_ps, columns, end: lanes.end_ps, ended };
    let mut lines = drawn.pixels.chunks_exact_mut(columns);
    'ranks: for rank in window.ranks.iter().copied() {
        for (lane, row) in rows.iter().enumerate() {
            let Some(line) = lines.next() else { break 'ranks };
            let spans = lanes.spans(rank, *row);
            scale.draw(spans, line);
            if window.label_columns == 0 {
                continue;
            }
            for span in scale.visible(spans) {
                let (from, to) = (span.from.max(window.from_ps), scale.end_of(span).min(to_ps));
                let wide = scale.column(to).saturating_sub(scale.column(from));
                if wide >= window.label_columns as usize && drawn.texts.len() < MAX_TEXTS {
                    let text = text_of(rank, *row, span);
                    let lane = lane as u32;
                    let class = scale.class(span, from);
                    drawn.texts.push(SpanText {
                        rank,
                        lane,
                        class,
                        from_ps: from,
                        to_ps: to,
                        text,
                    });
                }
            }
        }
    }
    drawn
}

/// The span at a time, or the nearest one within `slack_ps`.
pub(super) fn pick(spans: &[Span], time_ps: u64, slack_ps: u64) -> Option<Span> {
    let after = spans.partition_point(|span| span.to <= time_ps);
    let here = spans.get(after).filter(|span| span.from <= time_ps.saturating_add(slack_ps));
    let before = after.checked_sub(1).and_then(|before| spans.get(before));
    here.or(before.filter(|span| span.to.saturating_add(slack_ps) >= time_ps)).copied()
}

struct Scale {
    from: u64,
    to: u64,
    columns: usize,
    end: u64,
    ended: bool,
}

impl Scale {
    fn column(&self, time: u64) -> usize {
        let offset = u128::from(time.clamp(self.from, self.to) - self.from);
        (offset * self.columns as u128 / u128::from(self.to - self.from)) as usize
    }

    fn time(&self, column: usize) -> u64 {
        let width = u128::from(self.to - self.from);
        self.from + (width * column as u128 / self.columns as u128) as u64
    }

    fn end_of(&self, span: &Span) -> u64 {
        if span.to == OPEN { self.end.max(span.from + 1) } else { span.to }
    }

    /// Spans that reach into the window, as long as there are few enough to carry a text each.
    fn visible<'a>(&self, spans: &'a [Span]) -> impl Iterator<Item = &'a Span> + use<'a> {
        let first = spans.partition_point(|span| span.to <= self.from);
        let last = spans.partition_point(|span| span.from < self.to);
        let some = spans.get(first..last).unwrap_or_default();
        // Where there are more spans than pixels, hardly one is wide enough for a text.
        let few = some.len() <= self.columns;
        some.iter().filter(move |_| few)
    }

    fn class(&self, span: &Span, at: u64) -> u8 {
        let class = span.class.0;
        let open = span.to == OPEN && self.ended;
        let stuck = open && !span.class.is_message();
        let queued = match span.class.is_message() {
            true => open,
            false => class >= Class::FIRST_CALL && span.started != OPEN && at < span.started,
        };
        class | if stuck { Class::STUCK } else { 0 } | if queued { Class::QUEUED } else { 0 }
    }

    fn draw(&self, spans: &[Span], line: &mut [u8]) {
        let mut column = 0;
        while column < self.columns {
            let (begins, ends) =
                (self.time(column), self.time(column + 1).max(self.time(column) + 1));
            let at = spans.partition_point(|span| self.end_of(span) <= begins);
            let Some(span) = spans.get(at) else { return };
            if span.from >= ends {
                column = self.column(span.from).max(column + 1);
                continue;
            }
            // Of several spans in one column, one that is stuck is what must not be missed.
            let mut shown = span;
            for next in spans[at..].iter().take(4).take_while(|next| next.from < ends) {
                let covers = |s: &Span| self.end_of(s).min(ends) - s.from.max(begins).min(ends);
                if next.to == OPEN || covers(next) > covers(shown) {
                    shown = next;
                }
            }
            // The state in the middle of the column's stretch.
            let (first, last) = (begins.max(shown.from), ends.min(self.end_of(shown)));
            let class = self.class(shown, first / 2 + last / 2);
            line[column] = class;
            // The rest of a wide span needs no search.
            let switches = if begins < shown.started { shown.started } else { OPEN };
            let until = self.column(self.end_of(shown).min(switches)).min(self.columns);
            if until > column + 1 && shown == span {
                line[column + 1..until].fill(class);
                column = until;
            } else {
                column += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(columns: usize) -> Scale {
        Scale { from: 0, to: 100, columns, end: 100, ended: true }
    }

    fn span(from: u64, to: u64, class: u8) -> Span {
        Span { from, started: from, to, class: Class(class), what: 0 }
    }

    #[test]
    fn every_column_shows_what_covers_it() {
        let mut line = [0; 10];
        scale(10).draw(&[span(0, 20, 1), span(35, 60, 2), span(90, OPEN, 3)], &mut line);
        assert_eq!(line, [1, 1, 0, 2, 2, 2, 0, 0, 0, 131]);
    }

    #[test]
    fn spans_narrower_than_a_pixel_are_still_seen() {
        let spans: Vec<_> = (0..50).map(|i| span(2 * i, 2 * i + 1, 1)).collect();
        let mut line = [0; 10];
        scale(10).draw(&spans, &mut line);
        assert_eq!(line, [1; 10]);
    }

    #[test]
    fn the_nearest_span_within_reach_is_picked() {
        let spans = [span(10, 20, 1), span(40, 50, 2)];
        assert_eq!(pick(&spans, 15, 0), Some(spans[0]));
        assert_eq!(pick(&spans, 37, 5), Some(spans[1]));
        assert_eq!(pick(&spans, 22, 5), Some(spans[0]));
        assert_eq!(pick(&spans, 30, 5), None);
    }
}
