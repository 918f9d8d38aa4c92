#!/bin/bash
# The main job on real data, start to end, in a cluster of its own. KEEP=1 leaves everything running.
set -eu
cd "$(dirname "$0")/../.."
dir=${TB_DEMO_DIR:-${TMPDIR:-/tmp}/tensorbank-demo}
echo "building"
make -s -j"$(nproc)" all >build/demo-build.log 2>&1 || { tail -n 40 build/demo-build.log; exit 1; }
test/cluster.sh install
stop() {
	test/nginx.sh stop "$dir/http" 2>/dev/null || true
	test/cluster.sh stop "$dir/cluster" 2>/dev/null || true
}
stop
test/cluster.sh wipe "$dir/cluster"
rm -rf "$dir"
mkdir -p "$dir/stores" "$dir/index"
# the server runs as another user than root: it reads the stores and writes the indexes
[ "$(id -u)" = 0 ] && { id postgres >/dev/null 2>&1 || useradd --system postgres; chown -R postgres "$dir"; }
chmod 755 "$dir"
PGPORT=$(test/port.sh) HTTP_PORT=$(test/port.sh)
PGHOST=$(test/cluster.sh start "$dir/cluster" "$PGPORT" shared_preload_libraries=tensorbank)
export PGHOST PGPORT PGUSER=postgres PGDATABASE=postgres HTTP_PORT
[ "${KEEP:-0}" = 1 ] || trap stop EXIT
test/nginx.sh start "$dir/http" "$dir/stores" "$HTTP_PORT"
PYTHONPATH=src/client/python TB_DEMO_DIR=$dir build/venv/bin/python test/demo/demo.py
if [ "${KEEP:-0}" = 1 ]; then
	echo
	echo "Still running. psql -h $PGHOST -p $PGPORT -U postgres"
	echo "End it with: test/nginx.sh stop $dir/http; test/cluster.sh wipe $dir/cluster"
else
	echo
	echo "The cluster is stopped. KEEP=1 make demo leaves it running and says how to connect."
fi
