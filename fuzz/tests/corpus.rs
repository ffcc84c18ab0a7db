//! Every file of the corpus is read by every target, and a valid encoding of its own target, perhaps by an earlier build.

use terrane_fuzz::{checks, corpus, formats};

#[test]
fn every_target_reads_the_whole_corpus() {
    let all = formats::all();
    let mut inputs = Vec::new();
    for format in &all {
        let files = corpus::load(format.name).unwrap();
        assert!((1..=30).contains(&files.len()), "{} has {} files in its corpus", format.name, files.len());
        for file in files {
            checks::readable(format, &file);
            inputs.push(file);
        }
    }
    for format in all {
        inputs.iter().for_each(|input| checks::any(format, input));
    }
}

#[test]
fn every_bit_of_the_corpus_is_guarded_where_the_format_promises_it() {
    for format in formats::all() {
        let smallest = corpus::load(format.name).unwrap().into_iter().min_by_key(Vec::len);
        if let Some(file) = smallest {
            (0..file.len() * 8).for_each(|bit| checks::flipped(format, &file, bit, &mut |_| ()));
        }
    }
}
