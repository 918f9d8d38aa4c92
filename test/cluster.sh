#!/bin/bash
# A private PostgreSQL cluster for the demo, the tests and the benchmarks. Servers never run as root.
#   cluster.sh start DIR PORT [name=value ...]   init if needed, start, print the socket directory
#   cluster.sh stop DIR [mode]                   stop (fast), keep the data
#   cluster.sh wipe DIR                          stop and remove
#   cluster.sh install                           install the extension into the server that PG_CONFIG names
# As root everything of the server runs as TB_USER (default: postgres, made if missing).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
PG_CONFIG=${PG_CONFIG:-pg_config}
bin=$("$PG_CONFIG" --bindir)
# Debian's pg_config may be a newer client's: initdb tells whether a server is there.
[ -x "$bin/initdb" ] || bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
user=${TB_USER:-postgres}

as_server() {
	if [ "$(id -u)" = 0 ]; then
		id "$user" >/dev/null 2>&1 || useradd --system --create-home "$user"
		runuser -u "$user" -- "$@"
	else
		"$@"
	fi
}

case ${1:-} in
	start)
		dir=$2 port=$3
		shift 3
		mkdir -p "$dir"
		[ "$(id -u)" = 0 ] && { id "$user" >/dev/null 2>&1 || useradd --system --create-home "$user"; chown "$user" "$dir"; }
		if [ ! -e "$dir/data/PG_VERSION" ]; then
			as_server "$bin/initdb" -D "$dir/data" -U postgres -A trust --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null
			as_server mkdir -p "$dir/socket"
			cat <<-CONF | as_server tee -a "$dir/data/postgresql.conf" >/dev/null
				listen_addresses = '127.0.0.1'
				unix_socket_directories = '$dir/socket'
				fsync = off
				max_connections = 60
				shared_buffers = 32MB
				log_line_prefix = '%m [%p] %b '
				logging_collector = off
			CONF
		fi
		options="-p $port"
		for o in "$@"; do options="$options -c $o"; done
		as_server "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -t 60 -s -o "$options" start >/dev/null
		echo "$dir/socket"
		;;
	stop)
		as_server "$bin/pg_ctl" -D "$2/data" -m "${3:-fast}" -w -t 60 -s stop || true
		;;
	wipe)
		if [ -e "$2/data/postmaster.pid" ]; then as_server "$bin/pg_ctl" -D "$2/data" -m immediate -w -s stop || true; fi
		rm -rf "$2"
		;;
	install)
		sudo=
		[ "$(id -u)" = 0 ] || [ -w "$("$PG_CONFIG" --pkglibdir)" ] || sudo=sudo
		$sudo make -s -C "$here/.." install PG_CONFIG="$PG_CONFIG" >/dev/null
		;;
	*)
		sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
esac
