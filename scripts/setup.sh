#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs the Debian packages that a task needs, if any are missing. Does nothing, quickly,
# when all is there. Of those that only some tests need it says what could not be installed.
# usage: scripts/setup.sh build|demo|check
set -eu
cd "$(dirname "$0")/.."

build="gcc libc6-dev meson ninja-build pkg-config python3 libibverbs-dev librdmacm-dev
	libjansson-dev libdeflate-dev libssl-dev libcmocka-dev"
check="g++ clang clang-format libclang-rt-14-dev binutils libuv1-dev libevent-dev libev-dev
	liburing-dev"
# Without these some tests are skipped: those in a VM, foreign programs, and what looks at
# captures, manual pages and CMake.
vm="qemu-system-x86 iproute2 ibverbs-providers ibverbs-utils"
foreign="rdmacm-utils perftest libfabric-bin ucx-utils"
some="$vm $foreign tshark cmake groff-base"

case ${1:-} in
build | demo) wanted=$build optional= ;;
check) wanted="$build $check" optional=$some ;;
*)
	echo "usage: scripts/setup.sh build|demo|check" >&2
	exit 2
	;;
esac

stop() {
	echo "sennit: $1" >&2
	exit 1
}

missing_packages() { # PACKAGE...
	for package; do
		dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null |
			grep -qx installed || echo "$package"
	done
}

install_packages() {
	export DEBIAN_FRONTEND=noninteractive
	# Lists may be absent or stale, so that a first try can fail for no reason.
	$as_root apt-get install -y --no-install-recommends "$@" ||
		{ $as_root apt-get update &&
			$as_root apt-get install -y --no-install-recommends "$@"; }
}

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
	stop "this set-up knows Debian only; elsewhere install what stands for: $(echo $wanted)"

as_root=
[ "$(id -u)" = 0 ] || as_root="sudo -n"

missing=$(echo $(missing_packages $wanted))
if [ -n "$missing" ]; then
	echo "sennit: installing missing packages: $missing" >&2
	install_packages $missing >&2 ||
		stop "these packages are missing and could not be installed: $missing
sennit: install them as root with: apt-get install $missing"
	missing=$(echo $(missing_packages $wanted))
	[ -z "$missing" ] || stop "still missing after installation: $missing"
fi

missing=$(echo $(missing_packages $optional))
if [ -n "$missing" ]; then
	echo "sennit: installing packages that some tests need: $missing" >&2
	install_packages $missing >&2 || true
	missing=$(echo $(missing_packages $optional))
	[ -z "$missing" ] || echo "sennit: some tests will be skipped; install as root with:" \
		"apt-get install $missing" >&2
fi
