#!/bin/bash
# The benchmark's object stores on loopback, one nginx with several doors over one folder; needs Debian's libnginx-mod-http-echo.
#   server.sh start DIR ROOT PORT     PORT: plain; PORT+1: 20 ms before the first byte; PORT+2: 100 ms; PORT+3: 20 ms and 80 MB/s a
#                                     connection; PORT+4: one request in a hundred waits 500 ms. Each door has DIR/requests.PORT
#   server.sh stop DIR
# Path-style S3 clients find ROOT as bucket "b" (signatures are not looked at).
set -eu
nginx=$(command -v nginx || echo /usr/sbin/nginx)
case ${1:-} in
	start)
		dir=$2 root=$3 port=$4
		mkdir -p "$dir/tmp"
		user=
		[ "$(id -u)" = 0 ] && user="user root;"
		modules=$("$nginx" -V 2>&1 | tr ' ' '\n' | sed -n 's/^--modules-path=//p')
		door() { # PORT SECONDS "directives of the files"
			cat <<-CONF
				server {
				    listen 127.0.0.1:$1 backlog=4096;
				    root $root;
				    access_log $dir/requests.$1 requests buffer=64k flush=1s;
				    location / { echo_sleep $2; echo_exec /.files\$uri; }
				    location /.files/ { internal; $3 alias $root/; }
				    location /.files/b/ { internal; $3 alias $root/; }
				}
			CONF
		}
		cat >"$dir/nginx.conf" <<-CONF
			load_module $modules/ngx_http_echo_module.so;
			$user
			worker_processes 2;
			worker_rlimit_nofile 65536;
			pid $dir/pid;
			error_log $dir/error.log;
			events { worker_connections 16384; }
			http {
			    sendfile on;
			    sendfile_max_chunk 2m;
			    tcp_nopush on;
			    keepalive_timeout 300;
			    keepalive_requests 10000000;
			    open_file_cache max=100000 inactive=600s;
			    default_type application/octet-stream;
			    log_format requests '\$request_method \$uri \$http_range \$status \$body_bytes_sent';
			    client_body_temp_path $dir/tmp/b;
			    proxy_temp_path $dir/tmp/p;
			    fastcgi_temp_path $dir/tmp/f;
			    uwsgi_temp_path $dir/tmp/u;
			    scgi_temp_path $dir/tmp/s;
			    split_clients \$request_id \$late { 1% 1; * 0; }
			    server {
			        listen 127.0.0.1:$port backlog=4096;
			        root $root;
			        access_log $dir/requests.$port requests buffer=64k flush=1s;
			        location /b/ { alias $root/; }
			    }
			    $(door $((port + 1)) 0.02 "")
			    $(door $((port + 2)) 0.1 "")
			    $(door $((port + 3)) 0.02 "limit_rate 80m;")
			    server {
			        listen 127.0.0.1:$((port + 4)) backlog=4096;
			        root $root;
			        access_log $dir/requests.$((port + 4)) requests buffer=64k flush=1s;
			        location / { if (\$late) { rewrite ^ /.late\$uri last; } }
			        location /.late/ { internal; echo_sleep 0.5; echo_exec /.files\$uri; }
			        location /.files/.late/ { internal; alias $root/; }
			    }
			}
		CONF
		"$nginx" -c "$dir/nginx.conf" -p "$dir" -e "$dir/error.log"
		;;
	stop)
		if [ -e "$2/pid" ]; then kill "$(cat "$2/pid")"; fi
		;;
	*)
		sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
esac
