#!/bin/bash
# Run the unit tests built in a folder: test/unit/run.sh build/release. Counts single tests, by cmocka's own numbers.
set -u
cd "$(dirname "$0")/../.." || exit 2
out=$1
passed=0 failed=0
export TB_STREAMER=$PWD/$out/tensorbank_streamer
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
for bin in "$out"/unit/test_*; do
	[ -x "$bin" ] && [ -f "$bin" ] || continue
	case $bin in *.d) continue ;; esac
	text=$(timeout 300 "$bin" 2>&1)
	rc=$?
	p=$(grep -aoE '\[  PASSED  \] [0-9]+ test' <<<"$text" | awk '{s += $4} END {print s + 0}')
	f=$(grep -aoE '^\[  FAILED  \] [0-9]+ test|^ [0-9]+ FAILED TEST' <<<"$text" | grep -oE '[0-9]+' | head -1)
	f=${f:-0}
	# a crash, a leak or a race counts, whatever the tests say; so does a program without tests
	if [ $rc != 0 ] && [ "$f" = 0 ]; then f=1; fi
	if [ $((p + f)) = 0 ]; then f=1; fi
	if [ "$f" != 0 ]; then
		echo "FAIL $bin (exit $rc)"
		grep -avE '^\[ RUN|^\[       OK' <<<"$text" | tail -n 60
	fi
	passed=$((passed + p)) failed=$((failed + f))
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
