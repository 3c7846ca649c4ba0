#!/bin/sh
# SPDX-License-Identifier: MIT
# Configures a build folder once; Meson keeps it up to date from then on.
# usage: [CC=...] scripts/configure.sh FOLDER [MESON OPTION...]
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
# Where libraries go Meson learns from dpkg-architecture, which a plain Debian does not have:
# it would take lib64, where the loader does not look. The compiler knows it, too.
multiarch=$(${CC:-cc} -print-multiarch 2>/dev/null) || multiarch=
[ -z "$multiarch" ] || set -- --libdir "lib/$multiarch" "$@"
[ -e "$folder/build.ninja" ] || meson setup "$folder" "$@" >"$folder.log" 2>&1 || {
	cat "$folder.log" >&2
	rm -rf "$folder" "$folder.log"
	exit 1
}
rm -f "$folder.log"
