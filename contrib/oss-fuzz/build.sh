#!/bin/bash
# Builds each target of fuzz/targets into $OUT, with its seeds beside it.
set -euo pipefail

cargo fuzz build --release --debug-assertions
for target in fuzz/targets/*.rs; do
    name=$(basename "$target" .rs)
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$name" "$OUT/"
    if [ -d "fuzz/seeds/$name" ]; then
        zip --quiet --junk-paths --recurse-paths "$OUT/${name}_seed_corpus.zip" "fuzz/seeds/$name"
    fi
done
