#!/bin/sh
# Makes what packages have in addition to the program: completions of shells and man pages, in the directory that is given.
set -eu
case $1 in /*) out=$1 ;; *) out=$PWD/$1 ;; esac
cd "$(dirname "$0")/../.."
# The date of the pages is that of the commit, so that the same source makes the same pages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH CGO_ENABLED=0
rm -rf "$out"
mkdir -p "$out/completions" "$out/man"
go build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o "$out/weir" ./cmd/weir
"$out/weir" completion bash >"$out/completions/weir.bash"
"$out/weir" completion fish >"$out/completions/weir.fish"
"$out/weir" completion zsh >"$out/completions/_weir"
rm "$out/weir"
go test ./cmd/weir -run '^TestManPages$' -count=1 -man "$out/man" >/dev/null
gzip -9n "$out"/man/*
