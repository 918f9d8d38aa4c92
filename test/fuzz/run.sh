#!/bin/bash
# Replay every fuzz target built in a folder over its corpus: test/fuzz/run.sh build/asan. An input is a test.
# A target test/fuzz/fuzz_X.c has its corpus in test/fuzz/corpus/fuzz_X or test/fuzz/corpus/X.
set -u
cd "$(dirname "$0")/../.." || exit 2
out=$1
passed=0 failed=0
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
for source in test/fuzz/fuzz_*.c; do
	name=$(basename "$source" .c)
	corpus=test/fuzz/corpus/$name
	[ -d "$corpus" ] || corpus=test/fuzz/corpus/${name#fuzz_}
	if [ ! -x "$out/fuzz/$name" ] || [ ! -d "$corpus" ]; then
		echo "FAIL $name: no program $out/fuzz/$name or no corpus"
		failed=$((failed + 1))
		continue
	fi
	text=$(timeout 300 "$out/fuzz/$name" "$corpus" 2>&1)
	rc=$?
	n=$(sed -n 's/^\([0-9]*\) inputs$/\1/p' <<<"$text" | tail -n 1)
	if [ $rc != 0 ] || [ "${n:-0}" = 0 ]; then
		echo "FAIL $name (exit $rc)"
		tail -n 60 <<<"$text"
		failed=$((failed + 1))
	else
		echo "$name: $n inputs"
		passed=$((passed + n))
	fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
