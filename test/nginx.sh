#!/bin/bash
# A private HTTP server over a folder, with a log that tells every request (tests count them).
#   nginx.sh start DIR ROOT PORT     its files in DIR, serving ROOT on 127.0.0.1:PORT; log DIR/access.log
#   nginx.sh stop DIR
set -eu
nginx=$(command -v nginx || echo /usr/sbin/nginx)
case ${1:-} in
	start)
		dir=$2 root=$3 port=$4
		mkdir -p "$dir/tmp"
		user=
		[ "$(id -u)" = 0 ] && user="user root;"
		cat >"$dir/nginx.conf" <<-CONF
			$user
			worker_processes 1;
			pid $dir/pid;
			error_log $dir/error.log;
			events { worker_connections 1024; }
			http {
			    sendfile on;
			    tcp_nopush on;
			    keepalive_requests 1000000;
			    log_format requests '\$request_method \$uri \$http_range \$status \$body_bytes_sent';
			    access_log $dir/access.log requests;
			    client_body_temp_path $dir/tmp/b;
			    proxy_temp_path $dir/tmp/p;
			    fastcgi_temp_path $dir/tmp/f;
			    uwsgi_temp_path $dir/tmp/u;
			    scgi_temp_path $dir/tmp/s;
			    server {
			        listen 127.0.0.1:$port;
			        root $root;
			        location / { }
			    }
			}
		CONF
		"$nginx" -c "$dir/nginx.conf" -p "$dir" -e "$dir/error.log"
		;;
	stop)
		if [ -e "$2/pid" ]; then kill "$(cat "$2/pid")"; fi
		;;
	*)
		sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
esac
