#!/bin/bash
# pg_regress: sql/*.sql against expected/*.out, in a private cluster.
set -u
cd "$(dirname "$0")/.." || exit 2
dir=$(mktemp -d "${TMPDIR:-/tmp}/tb-regress.XXXXXX")
port=$(test/port.sh)
trap 'test/cluster.sh wipe "$dir"' EXIT
chmod 755 "$dir"
test/cluster.sh install || exit 1
# The server's user must be able to read the stores: a copy under the cluster's folder.
cp -r test/data/regress "$dir/stores"
mkdir -m 777 "$dir/out"
chmod -R a+rX "$dir/stores"
[ "$(id -u)" = 0 ] && chown -R "${TB_USER:-postgres}" "$dir/stores"
socket=$(test/cluster.sh start "$dir" "$port") || { cat "$dir/log"; exit 1; }
tests=$(for f in sql/*.sql; do basename "$f" .sql; done)
pgxs=$(dirname "$(pg_config --pgxs)")
export TB_DATA=$dir/stores PGHOST=$socket PGPORT=$port PGUSER=postgres
# shellcheck disable=SC2086
"$pgxs/../../src/test/regress/pg_regress" --inputdir=. --outputdir="$dir/out" --bindir="$(pg_config --bindir)" \
	--host="$socket" --port="$port" --user=postgres --dbname=contrib_regression $tests >"$dir/out/summary" 2>&1
rc=$?
cat "$dir/out/summary"
mkdir -p build/regress
cp -r "$dir/out/." build/regress/ 2>/dev/null
[ -s "$dir/out/regression.diffs" ] && head -n 200 "$dir/out/regression.diffs"
ok=$(grep -cE '(\.\.\. ok|^ok )' "$dir/out/summary")
bad=$(grep -cE '(\.\.\. FAILED|^not ok )' "$dir/out/summary")
echo "$ok passed, $bad failed"
[ $rc = 0 ]
