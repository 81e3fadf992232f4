#!/bin/sh
# Makes what packages have in addition to the program: completions of shells and man pages, in the directory that is given.
set -eu
case $1 in /*) out=$1 ;; *) out=$PWD/$1 ;; esac
cd "$(dirname "$0")/../.."
# The date of the pages is that of the commit, so that the same source makes the same pages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
rm -rf "$out"
go test ./cmd/weir -run '^Test(Completions|ManPages)$' -count=1 -extras "$out" >/dev/null
gzip -9n "$out"/man/*
