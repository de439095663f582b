//! Prints the public items of a library, one a line, from the JSON that rustdoc makes of it.
//! `.ci/api` compares the lines with `public-api.txt` of each crate.

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(json) = std::env::args().nth(1) else {
        return Err("usage: public-api-text RUSTDOC.json".into());
    };
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    let mut out = std::io::stdout().lock();
    for item in api.items() {
        writeln!(out, "{item}")?;
    }
    Ok(())
}
