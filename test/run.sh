#!/bin/bash
# Every test, in order of cost; counts what passed and failed; last line "N passed, N failed".
# Parts: test/run.sh [lint build unit asan tsan fuzz regress pytest]
set -u
cd "$(dirname "$0")/.." || exit 2
parts=${*:-build lint unit asan tsan fuzz regress pytest}
passed=0 failed=0
log=build/test-log
mkdir -p build "$log"
jobs=$(nproc)

# add OUTPUT: count the "N passed, N failed" lines of a part
add() {
	local p f
	p=$(grep -aoE '^[0-9]+ passed, [0-9]+ failed$' "$1" | awk '{s += $1} END {print s + 0}')
	f=$(grep -aoE '^[0-9]+ passed, [0-9]+ failed$' "$1" | awk '{s += $3} END {print s + 0}')
	passed=$((passed + p)) failed=$((failed + f))
	echo "    $p passed, $f failed"
}

part() {
	local name=$1 rc start=$SECONDS
	shift
	echo "=== $name"
	"$@" >"$log/$name.log" 2>&1
	rc=$?
	grep -aE '^(SKIP|not ok|FAIL|corpus:|oracle:)' "$log/$name.log" | cut -c1-300 | head -60
	add "$log/$name.log"
	if [ $rc != 0 ]; then
		# a part that ends badly without counting a failure is one
		grep -qaE '^[0-9]+ passed, [1-9][0-9]* failed$' "$log/$name.log" || failed=$((failed + 1))
		echo "    $name failed (exit $rc); end of $log/$name.log:"
		tail -n 40 "$log/$name.log" | sed 's/^/    | /'
	fi
	echo "    $((SECONDS - start)) s"
}

build_all() {
	make -j"$jobs" all WERROR=-Werror && echo "1 passed, 0 failed" &&
		make -j"$jobs" BUILD=build/clang CC=clang WERROR=-Werror engine streamer && echo "1 passed, 0 failed"
}
unit() { make -j"$jobs" unit-bins && make --no-print-directory unit; }
sanitize() { make -j"$jobs" FLAVOUR="$1" unit-bins && make --no-print-directory FLAVOUR="$1" unit; }
fuzz() { make -j"$jobs" FLAVOUR=asan unit-bins && make --no-print-directory FLAVOUR=asan fuzz-regress; }

for p in $parts; do
	case $p in
		lint) part lint test/lint/run.sh ;;
		build) part build build_all ;;
		unit) part unit unit ;;
		asan) part asan sanitize asan ;;
		tsan) part tsan sanitize tsan ;;
		fuzz) part fuzz fuzz ;;
		regress) part regress test/regress.sh ;;
		pytest) part pytest test/py/run.sh ;;
		*) echo "unknown part $p" >&2; exit 2 ;;
	esac
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
