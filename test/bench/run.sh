#!/bin/bash
# Benchmarks: ratios inside one interleaved run. Never pass or fail by time.
#   TB_BENCH_BLOCKS (1 MiB each, default 512), TB_BENCH_ROUNDS (5), TB_BENCH_WORK (default: all that bench.py names, in its order),
#   TB_BENCH_DIR (where stores and cluster lie; kept for the next run)
set -eu
cd "$(dirname "$0")/../.."
dir=${TB_BENCH_DIR:-${TMPDIR:-/tmp}/tensorbank-bench}
python=${TB_VENV:-build/venv}/bin/python
make -s -j"$(nproc)" all >build/bench-build.log 2>&1 || { tail -n 40 build/bench-build.log; exit 1; }
mkdir -p build/bench
libs="-lcurl -lzstd -llz4 -lz -ljson-c -lexpat -luring -lcrypto -lpthread -lm"
# shellcheck disable=SC2086
cc -O2 -o build/bench/plain test/bench/plain.c -lcurl -lzstd -lblosc -lpthread
# shellcheck disable=SC2086
cc -O2 -std=gnu11 -D_GNU_SOURCE -Isrc -o build/bench/engine test/bench/engine.c build/release/libtb.a $libs
test/cluster.sh install
stop() {
	test/bench/server.sh stop "$dir/http" 2>/dev/null || true
	test/cluster.sh wipe "$dir/cluster" 2>/dev/null || true
}
stop
trap stop EXIT
mkdir -p "$dir/stores" "$dir/index"
[ "$(id -u)" = 0 ] && { id postgres >/dev/null 2>&1 || useradd --system postgres; chown -R postgres "$dir"; }
PGPORT=$(test/port.sh)
# five in a row for the doors of the store
HTTP_PORT=$(/usr/bin/python3 - "$PGPORT" <<-'PY'
	import random, socket, sys
	while True:
	    base = random.randrange(20000, 30000)
	    sockets = [socket.socket() for _ in range(5)]
	    try:
	        for i, s in enumerate(sockets):
	            s.bind(("127.0.0.1", base + i))
	        break
	    except OSError:
	        continue
	    finally:
	        for s in sockets:
	            s.close()
	print(base)
PY
)
PGHOST=$(test/cluster.sh start "$dir/cluster" "$PGPORT" shared_preload_libraries=tensorbank)
export PGHOST PGPORT PGUSER=postgres PGDATABASE=postgres HTTP_PORT
test/bench/server.sh start "$dir/http" "$dir/stores" "$HTTP_PORT"
PYTHONPATH=src/client/python TB_BENCH_DIR=$dir $python test/bench/bench.py
