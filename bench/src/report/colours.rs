//! Colours: the same subject has the same one in every picture. Kinds of index have the colours of
//! Okabe and Ito, darkened where they would be pale on white; every bar and line is labelled too.

use plotters::style::RGBColor;

/// Text; becomes the page's text colour.
pub const INK: RGBColor = RGBColor(1, 1, 1);
/// Lines of the grid; become a faint text colour.
pub const GRID: RGBColor = RGBColor(2, 2, 2);

/// By what a subject's name holds; the first that fits counts.
const KNOWN: [(&str, RGBColor); 42] = [
    ("fingerprint", RGBColor(213, 94, 0)),
    ("embedded", RGBColor(222, 152, 0)),
    ("eager", RGBColor(200, 105, 155)),
    ("lazy", RGBColor(20, 115, 185)),
    ("composite", RGBColor(0, 152, 112)),
    ("recent", RGBColor(75, 170, 225)),
    ("none", RGBColor(138, 138, 138)),
    ("rocksdb blind", RGBColor(117, 99, 196)),
    ("rocksdb eager", RGBColor(152, 138, 214)),
    ("rocksdb", RGBColor(178, 168, 222)),
    ("fjall blind", RGBColor(150, 100, 60)),
    ("fjall eager", RGBColor(182, 138, 100)),
    ("fjall", RGBColor(200, 166, 136)),
    ("sqlite", RGBColor(140, 150, 50)),
    ("lmdb", RGBColor(60, 150, 150)),
    ("redb", RGBColor(180, 80, 95)),
    ("esker", RGBColor(20, 115, 185)),
    // Ways to maintain indexes.
    ("update-in-place", RGBColor(200, 105, 155)),
    ("validation + repair", RGBColor(20, 115, 185)),
    ("validation", RGBColor(75, 170, 225)),
    ("mutable-bitmap", RGBColor(0, 152, 112)),
    ("deleted-key", RGBColor(222, 152, 0)),
    ("deferred", RGBColor(213, 94, 0)),
    ("no index", RGBColor(138, 138, 138)),
    // Ways to look records up, the better the greener.
    ("naive", RGBColor(200, 105, 155)),
    ("+ batches", RGBColor(213, 94, 0)),
    ("stateful", RGBColor(222, 152, 0)),
    ("blocked", RGBColor(75, 170, 225)),
    ("component ids", RGBColor(0, 152, 112)),
    ("any order", RGBColor(0, 152, 112)),
    ("by key", RGBColor(20, 115, 185)),
    ("newest first", RGBColor(222, 152, 0)),
    ("primary-key index", RGBColor(0, 152, 112)),
    ("records alone", RGBColor(213, 94, 0)),
    // Ways to repair.
    ("primary + merge", RGBColor(213, 94, 0)),
    ("primary", RGBColor(222, 152, 0)),
    ("secondary + bloom", RGBColor(75, 170, 225)),
    ("secondary", RGBColor(0, 152, 112)),
    // Shares of the records.
    ("0.1 %", RGBColor(75, 170, 225)),
    ("1 %", RGBColor(0, 152, 112)),
    ("10 %", RGBColor(222, 152, 0)),
    ("20 %", RGBColor(213, 94, 0)),
];

/// How many of them are kinds of index, of Esker alone.
const KINDS: usize = 7;

/// The colour of a subject.
pub fn of(subject: &str) -> RGBColor {
    let name = subject.to_lowercase();
    let peer = ["rocksdb", "fjall", "sqlite", "lmdb", "redb"]
        .iter()
        .any(|peer| name.contains(peer));
    KNOWN
        .iter()
        .skip(if peer { KINDS } else { 0 })
        .find(|(known, _)| name.contains(known))
        .map_or(RGBColor(110, 120, 130), |(_, colour)| *colour)
}
