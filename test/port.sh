#!/bin/sh
# Print a TCP port of 127.0.0.1 that nobody listens on just now.
exec /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
