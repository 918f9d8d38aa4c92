#!/bin/sh
# Install what is missing: Debian packages (apt, with sudo where not root) and a Python environment in build/venv.
#   deps.sh          to build         deps.sh demo | test | bench    to run these
# Plain "make && make install" needs the packages of BUILD and nothing else, and installs nothing.
set -eu
cd "$(dirname "$0")/.."
what=${1:-build}

BUILD="gcc make pkg-config postgresql-server-dev-15 libcurl4-openssl-dev libzstd-dev liblz4-dev zlib1g-dev
       libjson-c-dev libexpat1-dev liburing-dev libssl-dev"
RUN="postgresql-15 python3 python3-venv python3-pip python3-numpy python3-torch nginx-light ca-certificates"
DEMO="ferret-datasets python3-matplotlib python3-netcdf4"
TEST="libcmocka-dev clang procps openssl curl"
BENCH="libnginx-mod-http-echo libblosc-dev"

packages=$BUILD
case $what in
	build) ;;
	demo) packages="$BUILD $RUN $DEMO" ;;
	test) packages="$BUILD $RUN $DEMO $TEST" ;;
	bench) packages="$BUILD $RUN $DEMO $TEST $BENCH" ;;
	*) echo "usage: $0 [demo | test | bench]" >&2; exit 2 ;;
esac

missing=
for p in $packages; do
	case $(dpkg-query -W -f '${Status}' "$p" 2>/dev/null) in
		*"install ok installed") continue ;;
	esac
	# any nginx does
	[ "$p" = nginx-light ] && command -v nginx >/dev/null 2>&1 && continue
	missing="$missing $p"
done
if [ -n "$missing" ]; then
	echo "installing:$missing"
	sudo=
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || { echo "not root and no sudo: apt-get install$missing" >&2; exit 1; }
		sudo=sudo
	fi
	export DEBIAN_FRONTEND=noninteractive
	# Debian's postgresql packages would start a cluster of their own: the demo and the tests have private ones.
	# shellcheck disable=SC2086
	if ! $sudo sh -c 'mkdir -p /etc/postgresql-common && [ -e /etc/postgresql-common/createcluster.conf ] ||
		echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf'; then :; fi
	$sudo apt-get update -qq
	# shellcheck disable=SC2086
	$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
[ "$what" = build ] && exit 0

# zarr 3.1, psycopg 3 and pytest are not in Debian 12; torch and numpy (1.x, as torch 1.13 needs it) are.
venv=build/venv
stamp=$venv/.ready-2
if [ ! -e $stamp ]; then
	/usr/bin/python3 -m venv --clear --system-site-packages $venv
	echo "installing Python packages into $venv"
	$venv/bin/pip install -q --disable-pip-version-check 'numpy<2' 'zarr[remote]==3.1.*' aiohttp 'psycopg[binary]==3.*' pytest \
		'xarray>=2025.3'
	touch $stamp
fi
# a contestant of the benchmark
if [ "$what" = bench ] && ! $venv/bin/python -c 'import tensorstore' 2>/dev/null; then
	$venv/bin/pip install -q --disable-pip-version-check 'numpy<2' tensorstore
fi
